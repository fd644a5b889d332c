// What a page does with MQTT.js, in steps that a test asks for; clients go by name.
"use strict";

const clients = {};

/** Base64 of up to 64 KiB, else its SHA-256, so that large payloads stay in the page. */
async function shown(payload) {
  if (payload.length > 65536) {
    const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", payload));
    return "sha256:" + Array.from(digest, (byte) => byte.toString(16).padStart(2, "0")).join("");
  }
  return btoa(Array.from(payload, (byte) => String.fromCharCode(byte)).join(""));
}

/** Settles with the next CONNACK, or fails when the connection ends without one. */
function accepted(client) {
  return new Promise((resolve, reject) => {
    client.once("connect", (packet) => resolve({ sessionPresent: packet.sessionPresent }));
    client.once("close", () => reject(new Error("closed before it was accepted")));
  });
}

const steps = {
  connect({ name, url, options }) {
    const client = mqtt.connect(url, { reconnectPeriod: 0, ...options });
    const known = { client, messages: [], waiting: [] };
    clients[name] = known;
    client.on("error", (error) => console.info(`${name}: ${error.message}`));
    client.on("message", async (topic, payload, packet) => {
      const message = { topic, qos: packet.qos, retain: packet.retain, payload: shown(payload) };
      // In its place before its sum is known: messages stay in their order.
      known.messages.push(message);
      known.waiting.shift()?.();
    });
    return accepted(client);
  },

  async subscribe({ name, filter, qos }) {
    const granted = await clients[name].client.subscribeAsync(filter, { qos });
    return granted.map((each) => each.qos);
  },

  /** Until it is acknowledged; a number as payload: so many bytes, each its index modulo 251. */
  async publish({ name, topic, payload, qos, retain }) {
    const bytes =
      typeof payload === "number" ? Uint8Array.from({ length: payload }, (_, index) => index % 251) : payload;
    await clients[name].client.publishAsync(topic, bytes, { qos, retain });
  },

  async next({ name }) {
    const known = clients[name];
    if (!known.messages.length) {
      await new Promise((resolve) => known.waiting.push(resolve));
    }
    const message = known.messages.shift();
    return { ...message, payload: await message.payload };
  },

  waiting({ name }) {
    return clients[name].messages.length;
  },

  /** The connection breaks: the socket closes without a DISCONNECT. */
  async cut({ name }) {
    const { client } = clients[name];
    const closed = new Promise((resolve) => client.once("close", resolve));
    client.stream.destroy();
    await closed;
  },

  reconnect({ name }) {
    const { client } = clients[name];
    client.reconnect();
    return accepted(client);
  },

  async end({ name }) {
    await clients[name].client.endAsync();
    delete clients[name];
  },
};
