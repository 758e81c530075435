/* What the C interface does at its limits: `behaviour NAME` runs one check, and ends with 0 if all holds. */
#define _POSIX_C_SOURCE 200809L
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <thalweg.h>
#include <unistd.h>

#define LONG THALWEG_S(20)
#define CHECK(condition)                                                                             \
  do {                                                                                               \
    if (!(condition)) {                                                                              \
      fprintf(stderr, "%s:%d: %s\nlast error: %s\n", __FILE__, __LINE__, #condition, thalweg_last_error()); \
      exit(1);                                                                                       \
    }                                                                                                \
  } while (0)
#define OK(call) CHECK((call) == THALWEG_OK)
#define FAILS(call, expected, text) CHECK((call) == (expected) && strstr(thalweg_last_error(), text) != NULL)

static thalweg_node *node;
static thalweg_type *bytes;

static thalweg_publisher *publisher(const char *topic) {
  thalweg_publisher *opened = NULL;
  OK(thalweg_publisher_open(node, topic, bytes, NULL, &opened));
  return opened;
}

static thalweg_subscriber *subscriber(const char *topic) {
  thalweg_subscriber *opened = NULL;
  OK(thalweg_subscriber_open(node, topic, bytes, NULL, &opened));
  return opened;
}

static void nulls(void) {
  size_t len = 0;
  thalweg_loan *loan = NULL;
  thalweg_sample *sample = NULL;
  void *data = NULL;
  thalweg_node *other = NULL;
  FAILS(thalweg_node_open(NULL, NULL, &other), THALWEG_INVALID, "name is a null pointer");
  FAILS(thalweg_node_open("x", NULL, NULL), THALWEG_INVALID, "node is a null pointer");
  FAILS(thalweg_publisher_open(NULL, "/a", bytes, NULL, NULL), THALWEG_INVALID, "publisher is a null pointer");
  thalweg_publisher *opened = NULL;
  FAILS(thalweg_publisher_open(NULL, "/a", bytes, NULL, &opened), THALWEG_INVALID, "node is a null pointer");
  FAILS(thalweg_publisher_open(node, NULL, bytes, NULL, &opened), THALWEG_INVALID, "topic is a null pointer");
  FAILS(thalweg_publisher_open(node, "/a", NULL, NULL, &opened), THALWEG_INVALID, "message_type is a null pointer");
  FAILS(thalweg_publisher_open(node, "a//b", bytes, NULL, &opened), THALWEG_INVALID, "empty segment");
  FAILS(thalweg_publisher_open(node, "/\xff", bytes, NULL, &opened), THALWEG_INVALID, "not UTF-8");
  CHECK(opened == NULL);
  FAILS(thalweg_publisher_publish(NULL, "x", 1, NULL), THALWEG_INVALID, "publisher is a null pointer");
  FAILS(thalweg_publisher_loan(NULL, 1, &loan, &data), THALWEG_INVALID, "publisher is a null pointer");
  FAILS(thalweg_loan_publish(NULL, NULL), THALWEG_INVALID, "loan is a null pointer");
  FAILS(thalweg_loan_drop(NULL), THALWEG_INVALID, "loan is a null pointer");
  FAILS(thalweg_subscriber_take(NULL, &sample), THALWEG_INVALID, "subscriber is a null pointer");
  FAILS(thalweg_subscriber_wait(NULL, 0, &sample), THALWEG_INVALID, "subscriber is a null pointer");
  FAILS(thalweg_sample_value(NULL, &len, 8), THALWEG_INVALID, "sample is a null pointer");
  FAILS(thalweg_sample_read_info(NULL, NULL), THALWEG_INVALID, "sample is a null pointer");
  FAILS(thalweg_type_encode(NULL, NULL, NULL, 0, &len), THALWEG_INVALID, "message_type is a null pointer");
  FAILS(thalweg_client_call(NULL, "x", 1, 0, &sample), THALWEG_INVALID, "client is a null pointer");
  FAILS(thalweg_reply_data(NULL, "x", 1), THALWEG_INVALID, "reply is a null pointer");
  FAILS(thalweg_node_set(node, NULL, NULL, NULL, NULL), THALWEG_INVALID, "publisher is a null pointer");
  FAILS(thalweg_node_visit_ports(node, NULL, NULL), THALWEG_INVALID, "visit is a null pointer");
  FAILS(thalweg_node_close(NULL), THALWEG_INVALID, "node is a null pointer");
  CHECK(thalweg_sample_data(NULL) == NULL && thalweg_sample_len(NULL) == 0 && !*thalweg_publisher_name(NULL));
  thalweg_publisher *one = publisher("/a");
  FAILS(thalweg_publisher_publish(one, NULL, 1, NULL), THALWEG_INVALID, "data is a null pointer");
  FAILS(thalweg_publisher_publish_value(one, &len, NULL), THALWEG_INVALID, "has no C struct");
  OK(thalweg_publisher_publish(one, NULL, 0, NULL));
  thalweg_publisher_free(one);
  thalweg_node_free(NULL);
  thalweg_type_free(NULL);
  thalweg_publisher_free(NULL);
  thalweg_subscriber_free(NULL);
  thalweg_sample_free(NULL);
  thalweg_client_free(NULL);
  thalweg_server_free(NULL);
  thalweg_string_free(NULL);
  CHECK(!strcmp(thalweg_status_name(THALWEG_TIMEOUT), "timeout") && !strcmp(thalweg_status_name(99), "unknown"));
}

/* Structures of options of an older header, of a newer one, and of none. */
static void options(void) {
  struct {
    thalweg_publisher_options known;
    uint64_t later;
  } newer = {.known = {.name = "/newer"}};
  thalweg_publisher *opened = NULL;
  FAILS(thalweg_publisher_open(node, "/a", bytes, &newer.known, &opened), THALWEG_INVALID, "options.size is 0");
  newer.known.size = 12;
  FAILS(thalweg_publisher_open(node, "/a", bytes, &newer.known, &opened), THALWEG_INVALID, "options.size is 12");
  newer.known.size = sizeof newer;
  newer.later = 7;
  FAILS(thalweg_publisher_open(node, "/a", bytes, &newer.known, &opened), THALWEG_INVALID, "does not have: use a newer one");
  newer.later = 0;
  OK(thalweg_publisher_open(node, "/a", bytes, &newer.known, &opened));
  CHECK(!strcmp(thalweg_publisher_name(opened), "/newer"));
  thalweg_publisher_free(opened);
  const thalweg_publisher_options older = {.size = offsetof(thalweg_publisher_options, qos), .name = "/older", .carriers = "pigeon"};
  OK(thalweg_publisher_open(node, "/a", bytes, &older, &opened));
  thalweg_publisher *second = NULL;
  FAILS(thalweg_publisher_open(node, "/a", bytes, &older, &second), THALWEG_REFUSED, "the port name /older is taken");
  thalweg_publisher_free(opened);

  thalweg_qos qos = {.size = sizeof qos, .priority_class = 9};
  thalweg_publisher_options wrong = {.size = sizeof wrong, .qos = &qos};
  FAILS(thalweg_publisher_open(node, "/a", bytes, &wrong, &opened), THALWEG_INVALID, "qos.priority_class is 9");
  qos = (thalweg_qos){.size = sizeof qos, .sched = THALWEG_SCHED_FIFO, .sched_priority = 100};
  FAILS(thalweg_publisher_open(node, "/a", bytes, &wrong, &opened), THALWEG_INVALID, "1 to 99");
  qos = (thalweg_qos){.size = sizeof qos, .queue = THALWEG_KEEP_LAST};
  FAILS(thalweg_publisher_open(node, "/a", bytes, &wrong, &opened), THALWEG_INVALID, "qos.depth is 0");
  wrong = (thalweg_publisher_options){.size = sizeof wrong, .settings = "deadline=soon"};
  FAILS(thalweg_publisher_open(node, "/a", bytes, &wrong, &opened), THALWEG_INVALID, "settings: deadline \"soon\": allowed is");
  wrong.settings = "queue=\"keep-last 4";
  FAILS(thalweg_publisher_open(node, "/a", bytes, &wrong, &opened), THALWEG_INVALID, "a quote is not closed");
  wrong.settings = "colour=red";
  FAILS(thalweg_publisher_open(node, "/a", bytes, &wrong, &opened), THALWEG_INVALID, "colour=red");
  wrong = (thalweg_publisher_options){.size = sizeof wrong, .carriers = "pigeon"};
  FAILS(thalweg_publisher_open(node, "/a", bytes, &wrong, &opened), THALWEG_INVALID, "carrier \"pigeon\"");
  qos = (thalweg_qos){.size = sizeof qos, .reliability = THALWEG_BEST_EFFORT, .deadline_ns = THALWEG_MS(20)};
  thalweg_publisher_options right = {
      .size = sizeof right, .qos = &qos, .settings = "queue=\"keep-last 4\" class=high reliability=reliable", .carriers = "tcp, shm"};
  OK(thalweg_publisher_open(node, "/a", bytes, &right, &opened));
  thalweg_publisher_free(opened);

  thalweg_node *other = NULL;
  FAILS(thalweg_node_open("a/b", NULL, &other), THALWEG_INVALID, "node name \"a/b\"");
  thalweg_node_options nodes = {.size = sizeof nodes, .listen = "nowhere"};
  FAILS(thalweg_node_open("x", &nodes, &other), THALWEG_INVALID, "\"nowhere\" is no address");
  nodes = (thalweg_node_options){.size = sizeof nodes, .admin_from = "10.0.0.0/99"};
  FAILS(thalweg_node_open("x", &nodes, &other), THALWEG_INVALID, "admin_from");
  FAILS(thalweg_schedule_this_thread("fifo:0"), THALWEG_INVALID, "1 to 99");
  OK(thalweg_schedule_this_thread("other:5"));
}

/* Calls on what is closed, in any order of closing and freeing. */
static void closed(void) {
  thalweg_publisher *out = publisher("/a");
  thalweg_subscriber *in = subscriber("/a");
  thalweg_sample *sample = NULL;
  thalweg_loan *loan = NULL;
  void *data = NULL;
  char *text = NULL;
  int descriptor = -1;
  OK(thalweg_subscriber_close(in));
  OK(thalweg_subscriber_close(in));
  FAILS(thalweg_subscriber_take(in, &sample), THALWEG_CLOSED, "closed");
  FAILS(thalweg_subscriber_wait(in, THALWEG_FOREVER, &sample), THALWEG_CLOSED, "closed");
  FAILS(thalweg_subscriber_descriptor(in, &descriptor), THALWEG_CLOSED, "closed");
  thalweg_subscriber *late = subscriber("/b");
  OK(thalweg_node_close(node));
  FAILS(thalweg_publisher_publish(out, "x", 1, NULL), THALWEG_CLOSED, "closed");
  FAILS(thalweg_publisher_loan(out, 1, &loan, &data), THALWEG_CLOSED, "closed");
  FAILS(thalweg_publisher_wait_connected(out, 1, THALWEG_FOREVER), THALWEG_CLOSED, "closed");
  FAILS(thalweg_subscriber_wait_connected(late, 1, THALWEG_FOREVER), THALWEG_CLOSED, "closed");
  FAILS(thalweg_subscriber_wait(late, THALWEG_FOREVER, &sample), THALWEG_CLOSED, "closed");
  FAILS(thalweg_node_wait_event(node, THALWEG_FOREVER, &text), THALWEG_CLOSED, "closed");
  FAILS(thalweg_node_set(node, "/a", "/b", "class=high", NULL), THALWEG_CLOSED, "closed");
  thalweg_publisher *none = NULL;
  FAILS(thalweg_publisher_open(node, "/c", bytes, NULL, &none), THALWEG_CLOSED, "closed");
  OK(thalweg_publisher_close(out, 0));
  thalweg_node_free(node);
  node = NULL;
  CHECK(!strcmp(thalweg_publisher_name(out), "/behaviour/a/pub1"));
  thalweg_subscriber_free(late);
  thalweg_publisher_free(out);
  thalweg_subscriber_free(in);
}

typedef struct {
  double x, y;
} Position;
typedef struct {
  bool on;
  uint8_t mode;
  float gains[3];
  Position at;
  char name[8];
  int64_t stamp;
} Reading;

static const thalweg_field position_fields[] = {THALWEG_FIELD(Position, x, THALWEG_F64), THALWEG_FIELD(Position, y, THALWEG_F64)};

static void types(void) {
  thalweg_type *position = NULL, *reading = NULL, *none = NULL;
  OK(thalweg_type_struct("Position", sizeof(Position), position_fields, 2, &position));
  thalweg_field fields[] = {
      THALWEG_FIELD(Reading, on, THALWEG_BOOL),      THALWEG_FIELD(Reading, mode, THALWEG_U8),
      THALWEG_FIELD_ARRAY(Reading, gains, THALWEG_F32, 3), THALWEG_FIELD_STRUCT(Reading, at, position),
      THALWEG_FIELD(Reading, name, THALWEG_STRING),  THALWEG_FIELD(Reading, stamp, THALWEG_I64),
  };
  OK(thalweg_type_struct("Reading", sizeof(Reading), fields, 6, &reading));
  thalweg_type_free(position);
  CHECK(!strcmp(thalweg_type_name(reading), "Reading"));
  Reading value = {true, 7, {1, 2, 3}, {4, 5}, "left", -6}, back = {0};
  unsigned char message[128];
  size_t len = 0;
  FAILS(thalweg_type_encode(reading, &value, message, 8, &len), THALWEG_TOO_LARGE, "the buffer 8");
  OK(thalweg_type_encode(reading, &value, message, sizeof message, &len));
  CHECK(len == 4 + 16 + 16 + 4 + 5 + 7 + 8);
  OK(thalweg_type_decode(reading, message, len, &back));
  CHECK(back.on && back.mode == 7 && back.gains[2] == 3 && back.at.y == 5 && !strcmp(back.name, "left") && back.stamp == -6);
  for (size_t shorter = 0; shorter < len; shorter++) {
    CHECK(thalweg_type_decode(reading, message, shorter, &back) == THALWEG_INVALID);
  }
  FAILS(thalweg_type_decode(reading, message, len + 4, &back), THALWEG_INVALID, "4 bytes are left over");
  message[4] = 2;
  FAILS(thalweg_type_decode(reading, message, len, &back), THALWEG_INVALID, "a truth value is 2");
  memcpy(value.name, "too long", 8);
  FAILS(thalweg_type_encode(reading, &value, message, sizeof message, &len), THALWEG_INVALID, "has no zero within its 8 bytes");

  const thalweg_field text[] = {{.name = "data", .kind = THALWEG_STRING, .bytes = 4}};
  thalweg_type *texts = NULL;
  OK(thalweg_type_struct("Text", 4, text, 1, &texts));
  char room[4];
  const unsigned char big_endian[] = {0, 0, 0, 0, 0, 0, 0, 3, 'u', 'p', 0}, long_one[] = {0, 1, 0, 0, 5, 0, 0, 0, 'a', 'b', 'c', 'd', 0};
  OK(thalweg_type_decode(texts, big_endian, sizeof big_endian, room));
  CHECK(!strcmp(room, "up"));
  FAILS(thalweg_type_decode(texts, long_one, sizeof long_one, room), THALWEG_TOO_LARGE, "4 bytes has no room in the field of 4");
  thalweg_type_free(texts);
  thalweg_type_free(reading);

  FAILS(thalweg_type_struct("Empty", 8, NULL, 0, &none), THALWEG_INVALID, "at least one field");
  thalweg_field bad = THALWEG_FIELD(Position, x, THALWEG_F64);
  bad.offset = 12;
  FAILS(thalweg_type_struct("Bad", sizeof(Position), &bad, 1, &none), THALWEG_INVALID, "ends beyond the struct's 16 bytes");
  bad = (thalweg_field){.name = "x", .kind = 99};
  FAILS(thalweg_type_struct("Bad", 0, &bad, 1, &none), THALWEG_INVALID, "no kind 99");
  bad = (thalweg_field){.name = "x", .kind = THALWEG_U8, .shape = THALWEG_ARRAY, .count = SIZE_MAX};
  FAILS(thalweg_type_struct("Bad", 64, &bad, 1, &none), THALWEG_INVALID, "an array has 1 to");
  bad = (thalweg_field){.name = "x", .kind = THALWEG_U8, .shape = THALWEG_SEQUENCE};
  FAILS(thalweg_type_struct("Bad", 64, &bad, 1, &none), THALWEG_INVALID, "has no place in a C struct");
  OK(thalweg_type_struct("Good", 0, &bad, 1, &none));
  FAILS(thalweg_type_encode(none, "x", message, sizeof message, &len), THALWEG_INVALID, "has no C struct");
  CHECK(thalweg_type_accepts(none, none) && !thalweg_type_accepts(none, bytes) && !thalweg_type_accepts(none, NULL));
  thalweg_type *same = NULL;
  OK(thalweg_type_schema(NULL, "{\"struct\":{\"name\":\"Good\",\"fields\":[{\"name\":\"x\",\"schema\":{\"sequence\":\"u8\"}}]}}", &same));
  CHECK(!strcmp(thalweg_type_name(same), "Good") && thalweg_type_accepts(none, same));
  thalweg_type_free(same);
  OK(thalweg_type_schema(NULL, "{\"sequence\":{\"sequence\":\"f64\"}}", &same));
  CHECK(!strcmp(thalweg_type_name(same), "sequence<sequence<f64>>"));
  thalweg_type_free(same);
  FAILS(thalweg_type_schema(NULL, "{\"sequence\":\"f6\"}", &same), THALWEG_INVALID, "schema: unknown variant `f6`");
  thalweg_type_free(none);
  bad = (thalweg_field){.name = "x", .kind = THALWEG_STRUCT_KIND};
  FAILS(thalweg_type_struct("Bad", 0, &bad, 1, &none), THALWEG_INVALID, "`nested` is no type");
  const thalweg_field twice[] = {THALWEG_FIELD(Position, x, THALWEG_F64), THALWEG_FIELD(Position, x, THALWEG_F64)};
  FAILS(thalweg_type_struct("Bad", sizeof(Position), twice, 2, &none), THALWEG_INVALID, "twice");
  FAILS(thalweg_type_plain("Odd", 10, 4, &none), THALWEG_INVALID, "no struct has 10 bytes aligned to 4");
  FAILS(thalweg_type_ros("std_msgs/msg/String", "strin data", &none), THALWEG_INVALID, "std_msgs/msg/String");
  FAILS(thalweg_type_ros("String", "string data", &none), THALWEG_INVALID, "String");
  CHECK(none == NULL);
}

static void *publish_elsewhere(void *argument) {
  OK(thalweg_publisher_publish(argument, "second", 6, NULL));
  return NULL;
}

static void *loan_elsewhere(void *argument) {
  FAILS(thalweg_loan_publish(argument, NULL), THALWEG_INVALID, "belongs to the thread that took it");
  FAILS(thalweg_loan_drop(argument), THALWEG_INVALID, "belongs to the thread that took it");
  return NULL;
}

static void loans(void) {
  thalweg_publisher *out = publisher("/a");
  thalweg_subscriber *in = subscriber("/a");
  thalweg_loan *loan = NULL, *second = NULL;
  thalweg_sample *sample = NULL;
  thalweg_published published;
  pthread_t thread, other;
  void *data = NULL;
  OK(thalweg_publisher_wait_connected(out, 1, LONG));
  FAILS(thalweg_publisher_loan(out, 17 << 20, &loan, &data), THALWEG_TOO_LARGE, "16777216 bytes");
  OK(thalweg_publisher_loan(out, 5, &loan, &data));
  memcpy(data, "first", 5);
  FAILS(thalweg_publisher_loan(out, 5, &second, &data), THALWEG_INVALID, "publish or drop its loan first");
  FAILS(thalweg_publisher_publish(out, "x", 1, NULL), THALWEG_INVALID, "publish or drop its loan first");
  FAILS(thalweg_publisher_wait_connected(out, 1, LONG), THALWEG_INVALID, "publish or drop its loan first");
  CHECK(!pthread_create(&thread, NULL, loan_elsewhere, loan) && !pthread_join(thread, NULL));
  CHECK(!pthread_create(&other, NULL, publish_elsewhere, out));
  OK(thalweg_loan_publish(loan, &published));
  CHECK(!pthread_join(other, NULL) && published.seq == 1);
  OK(thalweg_subscriber_wait(in, LONG, &sample));
  CHECK(thalweg_sample_len(sample) == 5 && !memcmp(thalweg_sample_data(sample), "first", 5));
  thalweg_sample_free(sample);
  OK(thalweg_subscriber_wait(in, LONG, &sample));
  CHECK(thalweg_sample_len(sample) == 6);
  thalweg_sample_free(sample);
  OK(thalweg_publisher_loan(out, 5, &loan, &data));
  OK(thalweg_loan_drop(loan));
  OK(thalweg_publisher_publish(out, "third", 5, NULL));
  OK(thalweg_publisher_loan(out, 5, &loan, &data));
  thalweg_publisher_free(out);
  OK(thalweg_loan_drop(loan));
  thalweg_subscriber_free(in);
}

static atomic_int calls, releases;
static _Atomic(thalweg_subscriber *) closes;

static void count(const thalweg_sample *sample, void *user) {
  thalweg_sample_info info = {.size = sizeof info};
  OK(thalweg_sample_read_info(sample, &info));
  CHECK(info.seq > 0 && info.same_clock && info.latency_ns <= info.received_ns);
  calls += (int)thalweg_sample_len(sample);
  if (closes) {
    OK(thalweg_subscriber_close(closes));
  }
  CHECK(user == &calls);
}

static void release(void *user) {
  CHECK(user == &calls);
  releases++;
}

static void until(atomic_int *counter, int value) {
  for (int left = 20000; left > 0 && *counter != value; left--) {
    poll(NULL, 0, 1);
  }
  CHECK(*counter == value);
}

static void callbacks(void) {
  thalweg_publisher *out = publisher("/a");
  thalweg_subscriber *in = NULL, *polled = NULL;
  thalweg_sample *sample = NULL;
  int descriptor = -1;
  thalweg_subscriber_options options = {.size = sizeof options, .callback = count, .user = &calls, .release = release};
  FAILS(thalweg_subscriber_open(node, "a//b", bytes, &options, &in), THALWEG_INVALID, "empty segment");
  CHECK(releases == 1);
  OK(thalweg_subscriber_open(node, "/a", bytes, &options, &in));
  OK(thalweg_publisher_wait_connected(out, 1, LONG));
  OK(thalweg_publisher_publish(out, "four", 4, NULL));
  until(&calls, 4);
  FAILS(thalweg_subscriber_descriptor(in, &descriptor), THALWEG_INVALID, "has a callback");
  CHECK(thalweg_subscriber_take(in, &sample) == THALWEG_TIMEOUT);
  OK(thalweg_subscriber_close(in));
  CHECK(releases == 2);
  OK(thalweg_publisher_publish(out, "four", 4, NULL));
  thalweg_subscriber_free(in);
  CHECK(calls == 4 && releases == 2);

  OK(thalweg_subscriber_open(node, "/b", bytes, &options, &in));
  closes = in;
  thalweg_publisher *other = publisher("/b");
  OK(thalweg_publisher_wait_connected(other, 1, LONG));
  OK(thalweg_publisher_publish(other, "x", 1, NULL));
  until(&releases, 3);
  OK(thalweg_publisher_publish(other, "x", 1, NULL));
  FAILS(thalweg_subscriber_take(in, &sample), THALWEG_CLOSED, "closed");
  thalweg_subscriber_free(in);
  CHECK(calls == 5 && releases == 3);
  closes = NULL;

  options.polled = true;
  FAILS(thalweg_subscriber_open(node, "/a", bytes, &options, &polled), THALWEG_INVALID, "choose one");
  options = (thalweg_subscriber_options){.size = sizeof options, .polled = true};
  OK(thalweg_subscriber_open(node, "/a", bytes, &options, &polled));
  FAILS(thalweg_subscriber_descriptor(polled, &descriptor), THALWEG_INVALID, "polled");
  OK(thalweg_publisher_wait_connected(out, 1, LONG));
  OK(thalweg_publisher_publish(out, "polled", 6, NULL));
  OK(thalweg_subscriber_wait(polled, LONG, &sample));
  thalweg_sample_free(sample);
  thalweg_subscriber_free(polled);
  thalweg_publisher_free(out);
  thalweg_publisher_free(other);
}

static void descriptors(void) {
  thalweg_publisher *out = publisher("/a");
  thalweg_subscriber *in = subscriber("/a");
  thalweg_sample *sample = NULL;
  struct pollfd waited = {.fd = -1, .events = POLLIN};
  int again = -1;
  OK(thalweg_subscriber_descriptor(in, &waited.fd));
  OK(thalweg_subscriber_descriptor(in, &again));
  CHECK(again == waited.fd && waited.fd >= 0);
  OK(thalweg_publisher_wait_connected(out, 1, LONG));
  for (int sent = 0; sent < 100; sent++) {
    CHECK(thalweg_subscriber_take(in, &sample) == THALWEG_TIMEOUT && sample == NULL);
    CHECK(poll(&waited, 1, 0) == 0);
    OK(thalweg_publisher_publish(out, "x", 1, NULL));
    CHECK(poll(&waited, 1, 20000) == 1);
    OK(thalweg_subscriber_take(in, &sample));
    CHECK(thalweg_sample_len(sample) == 1);
    thalweg_sample_free(sample);
  }
  thalweg_subscriber_free(in);
  thalweg_publisher_free(out);
}

static atomic_int waiting;

static void *waits(void *argument) {
  thalweg_sample *sample = NULL;
  waiting++;
  CHECK(thalweg_subscriber_wait(argument, THALWEG_FOREVER, &sample) == THALWEG_CLOSED && sample == NULL);
  return NULL;
}

static void *connects(void *argument) {
  waiting++;
  CHECK(thalweg_publisher_wait_connected(argument, 1, THALWEG_FOREVER) == THALWEG_CLOSED);
  return NULL;
}

static void *listens(void *argument) {
  char *text = NULL;
  waiting++;
  CHECK(thalweg_node_wait_event(argument, THALWEG_FOREVER, &text) == THALWEG_CLOSED && text == NULL);
  return NULL;
}

/* Closing ends the waits of other threads, and so does closing the node. */
static void waiters(void) {
  thalweg_subscriber *in = subscriber("/a"), *late = subscriber("/b"), *polled = NULL;
  thalweg_subscriber_options options = {.size = sizeof options, .polled = true};
  OK(thalweg_subscriber_open(node, "/c", bytes, &options, &polled));
  thalweg_publisher *out = publisher("/d");
  pthread_t threads[5];
  CHECK(!pthread_create(&threads[0], NULL, waits, in));
  CHECK(!pthread_create(&threads[1], NULL, waits, late));
  CHECK(!pthread_create(&threads[2], NULL, waits, polled));
  CHECK(!pthread_create(&threads[3], NULL, connects, out));
  CHECK(!pthread_create(&threads[4], NULL, listens, node));
  until(&waiting, 5);
  OK(thalweg_subscriber_close(in));
  CHECK(!pthread_join(threads[0], NULL));
  OK(thalweg_node_close(node));
  for (int index = 1; index < 5; index++) {
    CHECK(!pthread_join(threads[index], NULL));
  }
  thalweg_subscriber_free(in);
  thalweg_subscriber_free(late);
  thalweg_subscriber_free(polled);
  thalweg_publisher_free(out);
}

static void forks(void) {
  thalweg_publisher *out = publisher("/a");
  thalweg_subscriber *in = subscriber("/a");
  thalweg_sample *sample = NULL, *kept = NULL;
  OK(thalweg_publisher_wait_connected(out, 1, LONG));
  OK(thalweg_publisher_publish(out, "kept", 4, NULL));
  OK(thalweg_subscriber_wait(in, LONG, &kept));
  pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    thalweg_publisher *none = NULL;
    FAILS(thalweg_publisher_publish(out, "x", 1, NULL), THALWEG_CLOSED, "before fork(2)");
    FAILS(thalweg_subscriber_wait(in, LONG, &sample), THALWEG_CLOSED, "before fork(2)");
    FAILS(thalweg_publisher_open(node, "/b", bytes, NULL, &none), THALWEG_CLOSED, "before fork(2)");
    FAILS(thalweg_node_close(node), THALWEG_CLOSED, "before fork(2)");
    thalweg_sample_free(kept);
    thalweg_publisher_free(out);
    thalweg_subscriber_free(in);
    thalweg_node_free(node);
    _exit(0);
  }
  int ended = 1;
  CHECK(waitpid(child, &ended, 0) == child && ended == 0);
  thalweg_sample_free(kept);
  OK(thalweg_publisher_publish(out, "parent", 6, NULL));
  OK(thalweg_subscriber_wait(in, LONG, &sample));
  CHECK(thalweg_sample_len(sample) == 6);
  thalweg_sample_free(sample);
  thalweg_publisher_free(out);
  thalweg_subscriber_free(in);
}

static void forwards(void) {
  thalweg_publisher *first = publisher("/first"), *second = publisher("/second");
  thalweg_subscriber *between = subscriber("/first"), *last = subscriber("/second");
  thalweg_sample *sample = NULL, *again = NULL;
  thalweg_sample_info info = {.size = sizeof info}, later = {.size = offsetof(thalweg_sample_info, received_ns), .latency_ns = 77};
  OK(thalweg_publisher_wait_connected(first, 1, LONG));
  OK(thalweg_publisher_wait_connected(second, 1, LONG));
  OK(thalweg_publisher_publish(second, "before", 6, NULL));
  OK(thalweg_subscriber_wait(last, LONG, &again));
  thalweg_sample_free(again);
  OK(thalweg_publisher_publish(first, "x", 1, NULL));
  OK(thalweg_subscriber_wait(between, LONG, &sample));
  OK(thalweg_publisher_forward(second, sample, NULL));
  OK(thalweg_subscriber_wait(last, LONG, &again));
  OK(thalweg_sample_read_info(sample, &info));
  OK(thalweg_sample_read_info(again, &later));
  CHECK(info.seq == 1 && later.seq == 2 && later.source_ns == info.source_ns && later.latency_ns == 77);
  CHECK(!strcmp(info.publisher, thalweg_publisher_name(first)) && !strcmp(info.type_name, "bytes"));
  char value[4];
  FAILS(thalweg_sample_value(sample, value, 4), THALWEG_INVALID, "bytes has no C struct");
  thalweg_sample_free(sample);
  thalweg_sample_free(again);
  thalweg_publisher_free(first);
  thalweg_publisher_free(second);
  thalweg_subscriber_free(between);
  thalweg_subscriber_free(last);
}

static void answer(const thalweg_sample *question, thalweg_reply *reply, void *user) {
  Position asked;
  OK(thalweg_sample_value(question, &asked, sizeof asked));
  FAILS(thalweg_reply_data(reply, "x", 1), THALWEG_INVALID, "expected CDR");
  if (asked.x > 0) {
    OK(thalweg_reply_value(reply, &(Position){asked.y, asked.x}));
  }
  CHECK(user == &calls);
}

static atomic_int asks;

static void *asks_forever(void *argument) {
  Position reply;
  asks++;
  CHECK(thalweg_client_call_value(argument, &(Position){0, 0}, THALWEG_FOREVER, &reply) == THALWEG_CLOSED);
  return NULL;
}

static void services(void) {
  thalweg_type *position = NULL;
  thalweg_server *server = NULL;
  thalweg_client *client = NULL;
  thalweg_sample *reply = NULL;
  Position found;
  pthread_t thread;
  OK(thalweg_type_struct("Position", sizeof(Position), position_fields, 2, &position));
  FAILS(thalweg_client_open(node, "/swap", bytes, position, &client), THALWEG_INVALID, "bytes of a service has no structure");
  OK(thalweg_client_open(node, "/swap", position, position, &client));
  FAILS(thalweg_client_call_value(client, &(Position){1, 2}, THALWEG_MS(1), &found), THALWEG_TIMEOUT, "no server on /swap within 1 ms");
  FAILS(thalweg_server_open(node, "/swap", position, position, NULL, &calls, release, &server), THALWEG_INVALID, "answering");
  CHECK(releases == 1);
  OK(thalweg_server_open(node, "/swap", position, position, answer, &calls, release, &server));
  OK(thalweg_client_call_value(client, &(Position){1, 2}, LONG, &found));
  CHECK(found.x == 2 && found.y == 1);
  FAILS(thalweg_client_call_value(client, &(Position){0, 0}, THALWEG_MS(20), &found), THALWEG_TIMEOUT, "no answer on /swap");
  FAILS(thalweg_client_call(client, "x", 1, LONG, &reply), THALWEG_INVALID, "expected CDR");
  unsigned char message[32];
  size_t len = 0;
  OK(thalweg_type_encode(position, &(Position){3, 4}, message, sizeof message, &len));
  OK(thalweg_client_call(client, message, len, LONG, &reply));
  OK(thalweg_sample_value(reply, &found, sizeof found));
  CHECK(found.x == 4 && found.y == 3);
  FAILS(thalweg_sample_value(reply, &found, 8), THALWEG_INVALID, "has 16 bytes, not 8");
  thalweg_sample_free(reply);
  CHECK(!pthread_create(&thread, NULL, asks_forever, client));
  until(&asks, 1);
  OK(thalweg_client_close(client));
  CHECK(!pthread_join(thread, NULL));
  OK(thalweg_server_close(server));
  CHECK(releases == 2);
  thalweg_server_free(server);
  thalweg_client_free(client);
  thalweg_type_free(position);
  CHECK(releases == 2);
}

static bool one_port(const thalweg_port_info *port, void *user) {
  if (!strcmp(port->name, "/behaviour/a/pub1")) {
    CHECK(!strcmp(port->topic, "/a") && !strcmp(port->type_name, "bytes") && !strcmp(port->node_name, "behaviour"));
    CHECK(port->direction == THALWEG_PUBLISHER && port->node != 0);
  }
  return ++*(int *)user < 2;
}

static bool one_end(const thalweg_end_info *end, void *user) {
  CHECK(!strcmp(end->end, "publisher") && end->connected && *end->carrier && *end->because);
  CHECK(end->dscp == -1 || end->dscp == 36);
  ++*(int *)user;
  return true;
}

static void graph(void) {
  thalweg_publisher *out = publisher("/a");
  thalweg_subscriber *in = subscriber("/a"), *other = subscriber("/b");
  int ports = 0, ends = 0;
  char *effect = NULL;
  OK(thalweg_publisher_wait_connected(out, 1, LONG));
  OK(thalweg_node_visit_ports(node, one_port, &ports));
  CHECK(ports == 2);
  const char *from = thalweg_publisher_name(out), *to = thalweg_subscriber_name(in);
  FAILS(thalweg_node_set(node, from, to, "", NULL), THALWEG_INVALID, "nothing is set");
  FAILS(thalweg_node_set(node, to, from, "class=high", NULL), THALWEG_INVALID, "is a subscriber");
  FAILS(thalweg_node_set(node, from, "/none", "class=high", NULL), THALWEG_NOT_FOUND, "no port /none is known");
  FAILS(thalweg_node_set(node, from, to, "class=best", NULL), THALWEG_INVALID, "class");
  FAILS(thalweg_node_set(node, from, NULL, "every=2", NULL), THALWEG_INVALID, "name both ports");
  OK(thalweg_node_set(node, from, to, "class=high", &effect));
  CHECK(!strncmp(effect, "publisher ", 10) && strstr(effect, "\nsubscriber ") != NULL);
  thalweg_string_free(effect);
  OK(thalweg_node_set(node, from, to, "every=2", NULL));
  OK(thalweg_node_visit_ends(node, from, one_end, &ends));
  CHECK(ends == 1);
  thalweg_publisher_free(out);
  thalweg_subscriber_free(in);
  thalweg_subscriber_free(other);
}

/* Ports of other types do not meet, and the node says so. */
static void mismatches(void) {
  thalweg_type *position = NULL;
  thalweg_subscriber *in = NULL;
  OK(thalweg_type_struct("Position", sizeof(Position), position_fields, 2, &position));
  OK(thalweg_subscriber_open(node, "/a", position, NULL, &in));
  thalweg_publisher *out = publisher("/a");
  for (char *event = NULL;; thalweg_string_free(event)) {
    OK(thalweg_node_wait_event(node, LONG, &event));
    if (strstr(event, "do not match: type offered bytes") && strstr(event, "Position")) {
      thalweg_string_free(event);
      break;
    }
  }
  CHECK(thalweg_publisher_wait_connected(out, 1, 0) == THALWEG_TIMEOUT);
  thalweg_publisher_free(out);
  thalweg_subscriber_free(in);
  thalweg_type_free(position);
}

/* Samples of all sizes come as they went, over each carrier, and in order. */
static void carriers(void) {
  static const size_t sizes[] = {1, 1000, 100000};
  static const char *const names[] = {"local", "shm", "tcp"};
  static unsigned char sent[100000];
  for (size_t each = 0; each < sizeof names / sizeof *names; each++) {
    const thalweg_publisher_options from = {.size = sizeof from, .carriers = names[each]};
    const thalweg_subscriber_options to = {.size = sizeof to, .carriers = names[each]};
    thalweg_publisher *out = NULL;
    thalweg_subscriber *in = NULL;
    OK(thalweg_publisher_open(node, "/a", bytes, &from, &out));
    OK(thalweg_subscriber_open(node, "/a", bytes, &to, &in));
    OK(thalweg_publisher_wait_connected(out, 1, LONG));
    for (int number = 0; number < 21; number++) {
      const size_t length = sizes[number % 3];
      thalweg_sample *sample = NULL;
      memset(sent, number, length);
      OK(thalweg_publisher_publish(out, sent, length, NULL));
      OK(thalweg_subscriber_wait(in, LONG, &sample));
      CHECK(thalweg_sample_len(sample) == length && !memcmp(thalweg_sample_data(sample), sent, length));
      thalweg_sample_free(sample);
    }
    thalweg_publisher_free(out);
    thalweg_subscriber_free(in);
  }
}

enum { EACH = 1000 };

static void *publishes(void *argument) {
  for (int sent = 0; sent < EACH; sent++) {
    OK(thalweg_publisher_publish(argument, "x", 1, NULL));
  }
  return NULL;
}

/* Two threads share a publisher: all samples come, each with its number. */
static void threads(void) {
  const thalweg_publisher_options blocks = {.size = sizeof blocks, .settings = "queue=\"block 64 20s\""};
  const thalweg_subscriber_options options = {.size = sizeof options, .settings = "queue=\"keep-all 4000\""};
  thalweg_publisher *out = NULL;
  thalweg_subscriber *in = NULL;
  pthread_t two[2];
  OK(thalweg_publisher_open(node, "/a", bytes, &blocks, &out));
  OK(thalweg_subscriber_open(node, "/a", bytes, &options, &in));
  OK(thalweg_publisher_wait_connected(out, 1, LONG));
  CHECK(!pthread_create(&two[0], NULL, publishes, out) && !pthread_create(&two[1], NULL, publishes, out));
  for (uint64_t seq = 1; seq <= 2 * EACH; seq++) {
    thalweg_sample *sample = NULL;
    thalweg_sample_info info = {.size = sizeof info};
    OK(thalweg_subscriber_wait(in, LONG, &sample));
    OK(thalweg_sample_read_info(sample, &info));
    CHECK(info.seq == seq);
    thalweg_sample_free(sample);
  }
  CHECK(!pthread_join(two[0], NULL) && !pthread_join(two[1], NULL));
  thalweg_publisher_free(out);
  thalweg_subscriber_free(in);
}

static const struct {
  const char *name;
  void (*run)(void);
} checks[] = {
    {"nulls", nulls},   {"options", options},         {"closed", closed},     {"types", types},       {"loans", loans},
    {"callbacks", callbacks}, {"descriptors", descriptors}, {"waiters", waiters}, {"forks", forks},   {"forwards", forwards},
    {"services", services}, {"graph", graph},         {"mismatches", mismatches}, {"threads", threads},
    {"carriers", carriers},
};

int main(int words, char **word) {
  for (size_t index = 0; words == 2 && index < sizeof checks / sizeof *checks; index++) {
    if (!strcmp(checks[index].name, word[1])) {
      OK(thalweg_node_open("behaviour", NULL, &node));
      OK(thalweg_type_bytes(&bytes));
      checks[index].run();
      thalweg_node_free(node);
      thalweg_type_free(bytes);
      return 0;
    }
  }
  return fprintf(stderr, "usage: %s NAME\n", word[0]), 2;
}
