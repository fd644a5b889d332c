// Elements, made and changed. Text is only ever text: nothing here reads markup.

export const find = (id) => document.getElementById(id);

/** An element: properties by name (`class`, `on...`, attributes), then children; null ones are left out. */
export function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value === true ? "" : value);
  }
  put(made, ...children);
  return made;
}

export function put(parent, ...children) {
  for (const child of children.flat(Infinity)) {
    if (child !== null && child !== undefined) parent.append(child);
  }
  return parent;
}

export const fill = (parent, ...children) => {
  parent.replaceChildren();
  return put(parent, ...children);
};

export function text(node, value) {
  const wanted = String(value);
  if (node.textContent !== wanted) node.textContent = wanted;
}

export function attribute(node, name, value) {
  if (value === null) node.removeAttribute(name);
  else if (node.getAttribute(name) !== value) node.setAttribute(name, value);
}

/** What strangers have named: its direction is its own, and what cannot be seen is shown. */
export function name(value, properties = {}) {
  return element("bdi", { title: visible(value), ...properties }, visible(value));
}

/** Control and direction characters as their code points. */
export function visible(value) {
  return String(value ?? "").replace(
    /[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202f\u2060-\u206f\ufeff]/g,
    (found) => `\\u${found.codePointAt(0).toString(16).padStart(4, "0")}`,
  );
}

/** A fact that only an algorithm knows the meaning of. */
export const shown = (value) =>
  value === null || value === undefined ? "–" : typeof value === "boolean" ? (value ? "yes" : "no") : visible(value);

/** Children of `parent` become one for each item, those that were there already are kept and moved. */
export function keyed(parent, items, key, make, update) {
  const held = (parent.held ??= new Map());
  const wanted = new Map(items.map((item) => [String(key(item)), item]));
  for (const [id, child] of held) {
    if (!wanted.has(id)) {
      child.remove();
      held.delete(id);
    }
  }
  let place = parent.firstElementChild;
  for (const [id, item] of wanted) {
    let child = held.get(id);
    if (!child) {
      child = make(item);
      held.set(id, child);
    }
    if (child === place) place = place.nextElementSibling;
    else parent.insertBefore(child, place);
    update(child, item);
  }
}

/** Whether the user agrees. */
export function ask(question, yes) {
  const dialog = find("ask");
  text(find("ask-text"), question);
  text(find("ask-yes"), yes);
  dialog.returnValue = "no";
  dialog.showModal();
  return new Promise((answer) => {
    dialog.addEventListener("close", () => answer(dialog.returnValue === "yes"), { once: true });
  });
}
