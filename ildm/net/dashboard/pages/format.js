// Numbers and times for people.

const plain = new Intl.NumberFormat("en-US");
const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });
const day = new Intl.DateTimeFormat(undefined, {
  year: "numeric", month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23",
});

let ahead = 0;
/** The node's clock is what times are compared with. */
export function setNow(seconds) {
  ahead = seconds - Date.now() / 1000;
}
export const now = () => Date.now() / 1000 + ahead;

export const count = (number) => plain.format(Math.round(number));

export function rate(number) {
  if (number === null || number === undefined) return "–";
  return number > 0 && number < 9.95 ? String(Math.round(number * 10) / 10) : plain.format(Math.round(number));
}

export function bytes(number) {
  let amount = number;
  for (const unit of ["B", "kB", "MB", "GB"]) {
    if (amount < 999.5 || unit === "GB") {
      return `${unit === "B" || amount >= 99.5 ? Math.round(amount) : Math.round(amount * 10) / 10} ${unit}`;
    }
    amount /= 1000;
  }
  return "";
}

/** The two largest units. */
export function duration(seconds) {
  let left = Math.max(0, Math.floor(seconds));
  const parts = [];
  for (const [unit, size] of [["d", 86400], ["h", 3600], ["m", 60], ["s", 1]]) {
    const whole = Math.floor(left / size);
    left -= whole * size;
    if (whole || (unit === "s" && !parts.length)) parts.push(`${whole}${unit}`);
  }
  return parts.slice(0, 2).join(" ");
}

export const since = (moment) => (moment === null || moment === undefined ? "–" : duration(now() - moment));
export const at = (moment) => day.format(new Date(moment * 1000));
export const time = (moment) => clock.format(new Date(moment * 1000));
export const milliseconds = (seconds) =>
  seconds === null || seconds === undefined ? "" : seconds < 1 ? `${Math.round(seconds * 1e4) / 10} ms` : `${Math.round(seconds * 100) / 100} s`;
export const plural = (number, one, many = `${one}s`) => `${count(number)} ${number === 1 ? one : many}`;
