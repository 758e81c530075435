// Subscribes to /text as Foxglove does, and prints five samples, each with the type and the text of its schema.
let FoxgloveClient, WebSocket;
try {
  ({ FoxgloveClient } = require('@foxglove/ws-protocol'));
  ({ WebSocket } = require('ws'));
} catch {
  console.log('missing');
  process.exit(0);
}
const [address, protocol] = process.argv.slice(1);
const client = new FoxgloveClient({ ws: new WebSocket(`ws://${address}`, [protocol]) });
const channels = new Map();
let count = 0;
client.on('error', (error) => { console.error(error); process.exit(1); });
client.on('advertise', (offered) => {
  for (const channel of offered) {
    if (channel.topic !== '/text') continue;
    channels.set(client.subscribe(channel.id), channel);
    console.log('subscribed');
  }
});
client.on('message', ({ subscriptionId, data }) => {
  const { schemaName, schema } = channels.get(subscriptionId);
  // CDR, little-endian: four bytes of header, the length with the final zero, the text.
  const length = data.getUint32(4, true) - 1;
  const text = Buffer.from(data.buffer, data.byteOffset + 8, length).toString();
  console.log(`${schemaName} ${schema.trim()} ${text}`);
  count += 1;
  if (count === 5) process.exit(0);
});
