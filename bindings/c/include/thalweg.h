// The C interface of Thalweg: C11, usable from C++. Generated from bindings/c/src; a test compares the two.
//
// Errors: a function that returns thalweg_status has done its work if that is THALWEG_OK, and nothing otherwise. thalweg_last_error()
// then says whose fault it was and the remedy. A null handle or pointer is an error (THALWEG_INVALID), never a crash.
//
// Structures: the first field of a structure of options is its size, sizeof of it; zero in any other field is the default.
//
// Texts are UTF-8 and end with a zero byte. A text that a function takes is copied.
//
// Threads: all functions may be called on any thread, and every handle may be shared by threads, but for a loan, which stays on the thread
// that took it, and what a callback is given, which stays within its call. A publisher, a subscriber and a client are locked inside: calls of
// two threads follow one another. `close` may be called at any time: calls that wait return THALWEG_CLOSED. `free` is the last call of a
// handle: no other thread may use it then or later.
//
// Handles stay with the process that opened them: in a child of fork(2) calls return THALWEG_CLOSED.


#ifndef THALWEG_H
#define THALWEG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Durations in nanoseconds.
#define THALWEG_US(n) ((uint64_t)(n) * 1000u)
#define THALWEG_MS(n) ((uint64_t)(n) * 1000000u)
#define THALWEG_S(n) ((uint64_t)(n) * 1000000000u)
// Waits without end.
#define THALWEG_FOREVER UINT64_MAX

// Fields of a C struct for thalweg_type_struct: one value or text, an array of `count` values, the struct of another type.
#define THALWEG_FIELD(type, member, kind) \
  { #member, kind, THALWEG_ONE, 0, offsetof(type, member), sizeof(((type *)0)->member), NULL }
#define THALWEG_FIELD_ARRAY(type, member, kind, count) \
  { #member, kind, THALWEG_ARRAY, count, offsetof(type, member), 0, NULL }
#define THALWEG_FIELD_STRUCT(type, member, nested) \
  { #member, THALWEG_STRUCT_KIND, THALWEG_ONE, 0, offsetof(type, member), 0, nested }


// What a call came to.
enum thalweg_status
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  THALWEG_OK = 0,
  // The caller's fault: a null pointer, a bad name, a value out of range, bytes that are no message of the type.
  THALWEG_INVALID = 1,
  // Nothing came within the time.
  THALWEG_TIMEOUT = 2,
  // The node or port was closed, or belongs to the parent of this process.
  THALWEG_CLOSED = 3,
  // Somebody refused: the name is taken, the session is not admitted, a kernel gives no such priority.
  THALWEG_REFUSED = 4,
  // No such port.
  THALWEG_NOT_FOUND = 5,
  // A message is larger than the port's max_message, or than the room for it.
  THALWEG_TOO_LARGE = 6,
  // Another node or the network: it does not answer, or says no.
  THALWEG_PEER = 7,
  // The kernel of this host has no permission or resource for it.
  THALWEG_SYSTEM = 8,
  // A fault of the library.
  THALWEG_INTERNAL = 9,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum thalweg_status thalweg_status;
#else
typedef uint32_t thalweg_status;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// Packet priority.
enum thalweg_class
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  THALWEG_CLASS_DEFAULT = 0,
  THALWEG_CLASS_LOW = 1,
  THALWEG_CLASS_NORMAL = 2,
  THALWEG_CLASS_HIGH = 3,
  THALWEG_CLASS_CRITICAL = 4,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum thalweg_class thalweg_class;
#else
typedef uint32_t thalweg_class;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// Reliability of delivery. Default: reliable.
enum thalweg_reliability
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  THALWEG_RELIABILITY_DEFAULT = 0,
  THALWEG_RELIABLE = 1,
  THALWEG_BEST_EFFORT = 2,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum thalweg_reliability thalweg_reliability;
#else
typedef uint32_t thalweg_reliability;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// Samples that late joiners get. Default: none.
enum thalweg_durability
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  THALWEG_DURABILITY_DEFAULT = 0,
  THALWEG_VOLATILE = 1,
  // Late joiners get the last `history` samples.
  THALWEG_TRANSIENT_LOCAL = 2,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum thalweg_durability thalweg_durability;
#else
typedef uint32_t thalweg_durability;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// The queue of a channel that is slower than its publisher, or of samples that wait to be taken. Default: the last 16 samples.
enum thalweg_queue
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  THALWEG_QUEUE_DEFAULT = 0,
  // The last `depth` samples wait.
  THALWEG_KEEP_LAST = 1,
  // `depth` samples wait; further ones are refused.
  THALWEG_KEEP_ALL = 2,
  // `depth` samples wait; publish waits up to `block_ns` for room.
  THALWEG_BLOCK = 3,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum thalweg_queue thalweg_queue;
#else
typedef uint32_t thalweg_queue;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// Scheduling of the thread that serves the channels of a port.
enum thalweg_sched
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  THALWEG_SCHED_DEFAULT = 0,
  THALWEG_SCHED_OTHER = 1,
  THALWEG_SCHED_FIFO = 2,
  THALWEG_SCHED_RR = 3,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum thalweg_sched thalweg_sched;
#else
typedef uint32_t thalweg_sched;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// Kind of a field.
enum thalweg_kind
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  THALWEG_BOOL = 1,
  THALWEG_U8 = 2,
  THALWEG_U16 = 3,
  THALWEG_U32 = 4,
  THALWEG_U64 = 5,
  THALWEG_I8 = 6,
  THALWEG_I16 = 7,
  THALWEG_I32 = 8,
  THALWEG_I64 = 9,
  THALWEG_F32 = 10,
  THALWEG_F64 = 11,
  // UTF-8. In a C struct: an array of `bytes` characters, ended by a zero.
  THALWEG_STRING = 12,
  // The struct of the type `nested`.
  THALWEG_STRUCT_KIND = 13,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum thalweg_kind thalweg_kind;
#else
typedef uint32_t thalweg_kind;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// Number of elements of a field.
enum thalweg_shape
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  THALWEG_ONE = 0,
  // `count` of them.
  THALWEG_ARRAY = 1,
  // Any number. Not in a type that has a C struct.
  THALWEG_SEQUENCE = 2,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum thalweg_shape thalweg_shape;
#else
typedef uint32_t thalweg_shape;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// Direction of a port.
enum thalweg_direction
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  THALWEG_PUBLISHER = 1,
  THALWEG_SUBSCRIBER = 2,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum thalweg_direction thalweg_direction;
#else
typedef uint32_t thalweg_direction;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// Asks questions of a server.
typedef struct thalweg_client thalweg_client;

// A message that is being written in place.
typedef struct thalweg_loan thalweg_loan;

// A node: one participating process, or one context in it.
typedef struct thalweg_node thalweg_node;

// A publisher.
typedef struct thalweg_publisher thalweg_publisher;

// The answer that a server is about to give.
typedef struct thalweg_reply thalweg_reply;

// A received sample.
typedef struct thalweg_sample thalweg_sample;

// Answers questions.
typedef struct thalweg_server thalweg_server;

// A subscriber.
typedef struct thalweg_subscriber thalweg_subscriber;

// A type of messages. Ports keep what they need of it: it may be freed once they are open.
typedef struct thalweg_type thalweg_type;

// A port of any node. Valid during the call.
typedef struct thalweg_port_info {
  size_t size;
  const char *name;
  const char *topic;
  const char *type_name;
  const char *node_name;
  uint64_t node;
  // A thalweg_direction.
  uint32_t direction;
} thalweg_port_info;

// Called with each port. Return false to see no more.
typedef bool (*thalweg_port_visitor)(const struct thalweg_port_info *port, void *user);

// One end of a channel, as the kernel has it. Valid during the call.
typedef struct thalweg_end_info {
  size_t size;
  const char *publisher;
  const char *subscriber;
  // "publisher" or "subscriber".
  const char *end;
  // Empty: not connected.
  const char *carrier;
  // Policy of the thread that serves the end: "other", "fifo", "rr", ...; empty: none does.
  const char *sched;
  // Why the marks have the effect that their class promises, or have not.
  const char *because;
  // A further note; empty: none.
  const char *note;
  uint32_t sched_priority;
  // Id of the thread; 0: none.
  int32_t thread;
  // The thalweg_class that its packets have; THALWEG_CLASS_DEFAULT: none.
  uint32_t priority_class;
  // The code point in its packets; -1: the carrier has none.
  int32_t dscp;
  bool connected;
  bool effective;
} thalweg_end_info;

// Called with each end of a channel. Return false to see no more.
typedef bool (*thalweg_end_visitor)(const struct thalweg_end_info *end, void *user);

// The outcome of a publication on all channels.
typedef struct thalweg_published {
  // Number of the sample, counted from 1.
  uint64_t seq;
  // Channels on which it was sent.
  uint32_t sent;
  // Channels on which it waits.
  uint32_t queued;
  // Samples that channels dropped by their policy: older ones, or this one.
  uint32_t dropped;
  // Channels that did not take it, because their queue is full and drops no samples.
  uint32_t refused;
  // Channels that are broken or unreachable now.
  uint32_t not_connected;
} thalweg_published;

// Settings of a node.
typedef struct thalweg_node_options {
  size_t size;
  // Nodes of different realms do not see each other. Default: "default".
  const char *realm;
  // Addresses to listen on besides loopback, such as "10.0.0.2" or "10.0.0.2:7447", separated by commas. Default: none, this host only.
  const char *listen;
  // Nodes or routers on other hosts to connect to, such as "tcp/10.0.0.1:7447", separated by commas.
  const char *peers;
  // A file with the addresses of other hosts' nodes. Default: they are found by themselves.
  const char *discovery_file;
  // Networks of other hosts whose administrators may change this node, such as "10.0.0.0/24", separated by commas. Default: none.
  const char *admin_from;
  // Bytes that all channels of the node may hold together. Default: 1 GiB.
  uint64_t memory;
  // Keeps the whole process in memory (mlockall).
  bool lock_memory;
} thalweg_node_options;

// Policies of a port. The rules by which they match: docs/qos.md.
typedef struct thalweg_qos {
  size_t size;
  // A thalweg_class: of samples (publisher), of acknowledgements (subscriber).
  uint32_t priority_class;
  // A thalweg_reliability.
  uint32_t reliability;
  // A thalweg_durability.
  uint32_t durability;
  // With THALWEG_TRANSIENT_LOCAL: samples that late joiners get. Default: 1.
  uint32_t history;
  // A thalweg_queue.
  uint32_t queue;
  uint32_t depth;
  uint64_t block_ns;
  // The longest time between two samples: promised (publisher), expected (subscriber).
  uint64_t deadline_ns;
  // The longest acceptable time from publishing to delivery.
  uint64_t latency_budget_ns;
  // Older samples are dropped.
  uint64_t lifespan_ns;
  // The shortest time between two samples (subscriber).
  uint64_t separation_ns;
  // Largest encoded message in bytes. Default: 16 MiB.
  uint32_t max_message;
  // A thalweg_sched: of the thread that serves the port's channels.
  uint32_t sched;
  // 1 to 99 with THALWEG_SCHED_FIFO and THALWEG_SCHED_RR.
  uint32_t sched_priority;
} thalweg_qos;

// Settings of a publisher.
typedef struct thalweg_publisher_options {
  size_t size;
  // The port's name, unique among all nodes. Default: /<node>/<topic>, numbered if need be.
  const char *name;
  const struct thalweg_qos *qos;
  // Policies and priorities by name, as `thalweg set` and profiles have them, such as "deadline=20ms class=high sched=fifo:30". They count
  // more than `qos`. A value with spaces stands in quotes: queue="keep-last 4".
  const char *settings;
  // The carriers that are allowed, best first, separated by commas. Default: all that suit.
  const char *carriers;
  // Opens only as part of this session, which a broker has admitted with the topic.
  const char *session;
} thalweg_publisher_options;

// Publisher, number and time stamps of a sample.
typedef struct thalweg_sample_info {
  // Set by the caller.
  size_t size;
  // Number of the sample, counted from 1.
  uint64_t seq;
  // Time of publication, by the monotonic clock of the publisher's host.
  uint64_t source_ns;
  // Time of reception, by the monotonic clock of this host.
  uint64_t received_ns;
  // From publication to reception; 0 unless `same_clock`.
  uint64_t latency_ns;
  // Id of the publishing node.
  uint64_t node;
  // Name of the publishing port; empty if not known. Valid as long as the sample.
  const char *publisher;
  // Name of its type; empty if not known. Valid as long as the sample.
  const char *type_name;
  // Both stamps are of one clock.
  bool same_clock;
  // It was published before the subscriber joined.
  bool historical;
  // The instance ends: only the key of the sample counts.
  bool disposed;
} thalweg_sample_info;

// Answers a question, on a thread of the library, with thalweg_reply_data or thalweg_reply_value. Without them there is no answer, and the
// client's time passes. It must not throw.
typedef void (*thalweg_answer)(const struct thalweg_sample *question, struct thalweg_reply *reply, void *user);

// Called once with the user pointer, when it is needed no more.
typedef void (*thalweg_release)(void *user);

// Called with each sample, on a thread of the library; calls of one subscriber never overlap. The sample is valid until it returns. It must
// not throw.
typedef void (*thalweg_callback)(const struct thalweg_sample *sample, void *user);

// Settings of a subscriber. Its first fields are those of a publisher.
typedef struct thalweg_subscriber_options {
  size_t size;
  const char *name;
  const struct thalweg_qos *qos;
  const char *settings;
  const char *carriers;
  const char *session;
  // Called with each sample; none waits to be taken then.
  thalweg_callback callback;
  // Given to the callback.
  void *user;
  // Called with `user` after the last callback; also if the subscriber cannot be opened.
  thalweg_release release;
  // Lets the callback run on the publisher's thread where publisher and subscriber are in one process. A slow callback delays that
  // publisher then.
  bool on_publisher_thread;
  // The port has no thread: thalweg_subscriber_wait receives. The fastest way for a thread that does nothing else. Without callback and
  // descriptor.
  bool polled;
} thalweg_subscriber_options;

// A field of a structure.
typedef struct thalweg_field {
  const char *name;
  // A thalweg_kind.
  uint32_t kind;
  // A thalweg_shape.
  uint32_t shape;
  // Number of elements of an array.
  size_t count;
  // Offset in the C struct.
  size_t offset;
  // Size of the character array of a string in the C struct.
  size_t bytes;
  // The type of a field of kind THALWEG_STRUCT_KIND, made by thalweg_type_struct.
  const struct thalweg_type *nested;
} thalweg_field;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Frees a text that a function gave.
void thalweg_string_free(char *text);

// Version of the library, such as "0.1.0".
const char *thalweg_version(void);

// Name of a thalweg_status, such as "invalid argument".
const char *thalweg_status_name(uint32_t status);

// The text of this thread's last call that failed: its cause and remedy. Empty if none did. Valid until the next one fails.
const char *thalweg_last_error(void);

// Shows all ports that are known now, of all nodes.
thalweg_status thalweg_node_visit_ports(const struct thalweg_node *node, thalweg_port_visitor visit, void *user);

// Shows the ends at `port` of all its channels.
thalweg_status thalweg_node_visit_ends(const struct thalweg_node *node, const char *port, thalweg_end_visitor visit, void *user);

// Sets the priority of a live channel at both ends, as `thalweg set` does: "class=high sched=fifo:30 affinity=1". All is set, or nothing.
// Without subscriber (null) sched= and affinity= hold for all threads of the publisher's process. `effect` (may be null) gets the resulting
// state and whether it has an effect, a line for each end; freed by thalweg_string_free.
thalweg_status thalweg_node_set(const struct thalweg_node *node,
                                const char *publisher,
                                const char *subscriber,
                                const char *settings,
                                char **effect);

// A message of `len` bytes, to be written in place at `data`: in the subscribers' own shared memory where the carrier allows. Its content is
// left over from an older one. Other calls of the publisher wait until the loan is published or dropped; on the same thread they are
// refused.
thalweg_status thalweg_publisher_loan(const struct thalweg_publisher *publisher,
                                      size_t len,
                                      struct thalweg_loan **loan,
                                      void **data);

// Publishes a loan, which is gone then, also after an error. Only a call on another thread than that of the loan leaves it. `published` may
// be null.
thalweg_status thalweg_loan_publish(struct thalweg_loan *loan, struct thalweg_published *published);

// Drops a loan: nothing is published.
thalweg_status thalweg_loan_drop(struct thalweg_loan *loan);

// Sets policy and priority of the calling thread: "fifo:30", "rr:10", "other", "deadline:1ms/10ms".
thalweg_status thalweg_schedule_this_thread(const char *scheduling);

// Opens a node. Without options it listens on loopback only.
thalweg_status thalweg_node_open(const char *name, const struct thalweg_node_options *options, struct thalweg_node **node);

// Name of the node; valid as long as the node.
const char *thalweg_node_name(const struct thalweg_node *node);

// The node's next event as a text: a match, a mismatch with its reason, losses, warnings. Freed by thalweg_string_free.
thalweg_status thalweg_node_wait_event(const struct thalweg_node *node, uint64_t timeout_ns, char **event);

// Closes the node and all its ports.
thalweg_status thalweg_node_close(const struct thalweg_node *node);

// Frees a node; closes it if it is open. Its ports are freed on their own, before or after.
void thalweg_node_free(struct thalweg_node *node);

// Opens a publisher.
thalweg_status thalweg_publisher_open(const struct thalweg_node *node,
                                      const char *topic,
                                      const struct thalweg_type *message_type,
                                      const struct thalweg_publisher_options *given_options,
                                      struct thalweg_publisher **publisher);

// Name of the port; valid as long as the publisher.
const char *thalweg_publisher_name(const struct thalweg_publisher *publisher);

// Publishes a message: its encoded bytes. `published` may be null.
thalweg_status thalweg_publisher_publish(const struct thalweg_publisher *publisher,
                                         const void *data,
                                         size_t len,
                                         struct thalweg_published *published);

// Publishes a C struct of a type that has one. `published` may be null.
thalweg_status thalweg_publisher_publish_value(const struct thalweg_publisher *publisher,
                                               const void *value,
                                               struct thalweg_published *published);

// Publishes a sample that another port received, with its stamp. `published` may be null.
thalweg_status thalweg_publisher_forward(const struct thalweg_publisher *publisher,
                                         const struct thalweg_sample *sample,
                                         struct thalweg_published *published);

// Waits until at least `count` channels exist.
thalweg_status thalweg_publisher_wait_connected(const struct thalweg_publisher *publisher, size_t count, uint64_t timeout_ns);

// Closes the port after waiting at most `drain_ns` for unsent samples. THALWEG_TIMEOUT: some were dropped.
thalweg_status thalweg_publisher_close(const struct thalweg_publisher *publisher, uint64_t drain_ns);

// Frees a publisher; closes it, after at most one second, if it is open.
void thalweg_publisher_free(struct thalweg_publisher *publisher);

// The message, where it was received (over `shm` in the publisher's memory); valid as long as the sample. Null without sample.
const void *thalweg_sample_data(const struct thalweg_sample *sample);

// Length of the message in bytes.
size_t thalweg_sample_len(const struct thalweg_sample *sample);

// Decodes the message into the C struct of the subscriber's type, of `bytes` bytes.
thalweg_status thalweg_sample_value(const struct thalweg_sample *sample, void *value, size_t bytes);

// Reads publisher, number and time stamps.
thalweg_status thalweg_sample_read_info(const struct thalweg_sample *sample, struct thalweg_sample_info *info);

// Frees a sample that was taken. A subscriber that keeps many leaves a publisher over `shm` short of memory.
void thalweg_sample_free(struct thalweg_sample *sample);

// Answers questions on `topic` until it is closed. `release` is called as for a subscriber's callback. Types are structures or types of
// ROS 2.
thalweg_status thalweg_server_open(const struct thalweg_node *node,
                                   const char *topic,
                                   const struct thalweg_type *question,
                                   const struct thalweg_type *answer,
                                   thalweg_answer answering,
                                   void *user,
                                   thalweg_release release,
                                   struct thalweg_server **server);

// The answer: encoded bytes.
thalweg_status thalweg_reply_data(struct thalweg_reply *reply, const void *data, size_t len);

// The answer: a C struct of the type of answers.
thalweg_status thalweg_reply_value(struct thalweg_reply *reply, const void *value);

// Closes a server. No question is answered after it, unless it is called by the answering function itself, which ends then.
thalweg_status thalweg_server_close(const struct thalweg_server *server);

// Frees a server; closes it if it is open.
void thalweg_server_free(struct thalweg_server *server);

// A client of the service on `topic`.
thalweg_status thalweg_client_open(const struct thalweg_node *node,
                                   const char *topic,
                                   const struct thalweg_type *question,
                                   const struct thalweg_type *answer,
                                   struct thalweg_client **client);

// Asks, and waits for the answer. THALWEG_TIMEOUT: no server, or none answers in time.
thalweg_status thalweg_client_call(const struct thalweg_client *client,
                                   const void *data,
                                   size_t len,
                                   uint64_t timeout_ns,
                                   struct thalweg_sample **answer);

// The same with C structs of the two types.
thalweg_status thalweg_client_call_value(const struct thalweg_client *client, const void *question, uint64_t timeout_ns, void *answer);

// Closes a client: a call that waits returns THALWEG_CLOSED.
thalweg_status thalweg_client_close(const struct thalweg_client *client);

// Frees a client; closes it if it is open.
void thalweg_client_free(struct thalweg_client *client);

// Opens a subscriber. The topic may be a pattern (`*` one segment, `**` any number). Without type it takes samples of any type.
thalweg_status thalweg_subscriber_open(const struct thalweg_node *node,
                                       const char *topic,
                                       const struct thalweg_type *message_type,
                                       const struct thalweg_subscriber_options *given_options,
                                       struct thalweg_subscriber **subscriber);

// Name of the port; valid as long as the subscriber.
const char *thalweg_subscriber_name(const struct thalweg_subscriber *subscriber);

// Takes the oldest waiting sample. THALWEG_TIMEOUT: none waits.
thalweg_status thalweg_subscriber_take(const struct thalweg_subscriber *subscriber, struct thalweg_sample **sample);

// Takes the oldest waiting sample; waits for one.
thalweg_status thalweg_subscriber_wait(const struct thalweg_subscriber *subscriber, uint64_t timeout_ns, struct thalweg_sample **sample);

// A descriptor for poll(2) and the like. It becomes readable when a sample comes after a `take` or `wait` that found none: take until
// THALWEG_TIMEOUT, then wait for it. It belongs to the subscriber, is closed with it, and is not read.
thalweg_status thalweg_subscriber_descriptor(const struct thalweg_subscriber *subscriber, int *descriptor);

// Waits until at least `count` channels exist.
thalweg_status thalweg_subscriber_wait_connected(const struct thalweg_subscriber *subscriber, size_t count, uint64_t timeout_ns);

// Closes the port. No callback runs after it, unless it is called by the callback itself, which ends then.
thalweg_status thalweg_subscriber_close(const struct thalweg_subscriber *subscriber);

// Frees a subscriber; closes it if it is open.
void thalweg_subscriber_free(struct thalweg_subscriber *subscriber);

// Plain bytes.
thalweg_status thalweg_type_bytes(struct thalweg_type **message_type);

// A type of ROS 2: its name, such as "std_msgs/msg/String", and the text of its .msg file, with those of the types that it refers to behind
// it, as rosbag2 and MCAP write them (a line of 80 =, a line "MSG: pkg/Type"). The messages are its CDR bytes.
thalweg_status thalweg_type_ros(const char *name, const char *definition, struct thalweg_type **message_type);

// The memory of a C struct without pointers: only programs with the same name, size and alignment read it (Plain<T> in Rust).
thalweg_status thalweg_type_plain(const char *name, size_t bytes, size_t alignment, struct thalweg_type **message_type);

// A structure by its fields. The messages are its CDR bytes, which programs of all languages read. `bytes` is `sizeof` of the C struct, with
// which the `_value` functions encode and decode; 0: there is none.
thalweg_status thalweg_type_struct(const char *name,
                                   size_t bytes,
                                   const struct thalweg_field *fields,
                                   size_t count,
                                   struct thalweg_type **message_type);

// A type by its schema, as JSON: "f64", {"sequence":"u8"}, or as `thalweg info --json` shows it. The messages are its CDR bytes. A null name is
// that of the schema.
thalweg_status thalweg_type_schema(const char *name,
                                   const char *schema,
                                   struct thalweg_type **message_type);

// Whether a subscriber of the first type reads samples of the second; false if one is null.
bool thalweg_type_accepts(const struct thalweg_type *asked, const struct thalweg_type *offered);

// Name of the type, without its package; valid as long as the type.
const char *thalweg_type_name(const struct thalweg_type *message_type);

// Encodes a C struct. `len` gets the length, also if there is no `room` for it (THALWEG_TOO_LARGE).
thalweg_status thalweg_type_encode(const struct thalweg_type *message_type, const void *value, void *buffer, size_t room, size_t *len);

// Decodes a message into a C struct, whose content is unspecified after an error.
thalweg_status thalweg_type_decode(const struct thalweg_type *message_type, const void *data, size_t len, void *value);

// Frees a type.
void thalweg_type_free(struct thalweg_type *message_type);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* THALWEG_H */
