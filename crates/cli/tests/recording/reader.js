// Prints the messages of a file by topic, their number and all their bytes, as both readers of @mcap/core find them: by the index, and from the
// beginning with all checksums.
let McapIndexedReader, McapStreamReader;
try {
  ({ McapIndexedReader, McapStreamReader } = require('@mcap/core'));
} catch {
  console.log('"missing"');
  process.exit(0);
}
const file = require('fs').readFileSync(process.argv[1]);

function found(messages) {
  const topics = {};
  for (const [topic, data] of messages) (topics[topic] ??= []).push(data);
  const entry = ([topic, all]) => [topic, [all.length, Buffer.concat(all).toString('base64')]];
  return Object.fromEntries(Object.entries(topics).map(entry));
}

async function byIndex() {
  const readable = {
    size: async () => BigInt(file.length),
    read: async (offset, size) => file.subarray(Number(offset), Number(offset + size)),
  };
  const reader = await McapIndexedReader.Initialize({ readable });
  const messages = [];
  for await (const { channelId, data } of reader.readMessages()) {
    messages.push([reader.channelsById.get(channelId).topic, data]);
  }
  return found(messages);
}

function fromBeginning() {
  const reader = new McapStreamReader({ validateCrcs: true });
  reader.append(file);
  const [topics, messages] = [new Map(), []];
  for (let record; (record = reader.nextRecord()); ) {
    if (record.type === 'Channel') topics.set(record.id, record.topic);
    if (record.type === 'Message') messages.push([topics.get(record.channelId), record.data]);
  }
  if (!reader.done()) throw new Error('the file does not end');
  return found(messages);
}

byIndex().then((index) => console.log(JSON.stringify({ index, stream: fromBeginning() })));
