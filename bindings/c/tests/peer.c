/* The other side of nodes in Rust: `peer publish|subscribe|ask|serve`. Ends with 0 if all came. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <thalweg.h>

#define LONG THALWEG_S(20)
#define OK(call)                                                                        \
  do {                                                                                  \
    if ((call) != THALWEG_OK) {                                                         \
      fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, thalweg_last_error()); \
      exit(1);                                                                          \
    }                                                                                   \
  } while (0)

typedef struct {
  double x, y;
} Position;
typedef struct {
  bool on;
  uint8_t mode;
  float gains[3];
  Position at;
  char name[16];
  int64_t stamp;
} Reading;

static thalweg_node *node;
static thalweg_type *text, *plain, *position, *reading, *raw;

static void types(void) {
  const thalweg_field positions[] = {THALWEG_FIELD(Position, x, THALWEG_F64), THALWEG_FIELD(Position, y, THALWEG_F64)};
  OK(thalweg_type_struct("Position", sizeof(Position), positions, 2, &position));
  const thalweg_field readings[] = {
      THALWEG_FIELD(Reading, on, THALWEG_BOOL),          THALWEG_FIELD(Reading, mode, THALWEG_U8),
      THALWEG_FIELD_ARRAY(Reading, gains, THALWEG_F32, 3), THALWEG_FIELD_STRUCT(Reading, at, position),
      THALWEG_FIELD(Reading, name, THALWEG_STRING),      THALWEG_FIELD(Reading, stamp, THALWEG_I64),
  };
  OK(thalweg_type_struct("Reading", sizeof(Reading), readings, 6, &reading));
  OK(thalweg_type_ros("std_msgs/msg/String", "string data\n", &text));
  OK(thalweg_type_plain("Position", sizeof(Position), _Alignof(Position), &plain));
  OK(thalweg_type_bytes(&raw));
}

static thalweg_publisher *to(const char *topic, const thalweg_type *type) {
  thalweg_publisher *publisher = NULL;
  OK(thalweg_publisher_open(node, topic, type, NULL, &publisher));
  OK(thalweg_publisher_wait_connected(publisher, 1, LONG));
  return publisher;
}

static void publish(void) {
  const char hello[] = "\0\1\0\0\6\0\0\0hello";
  const Reading value = {true, 7, {1, 2, 3}, {4, 5}, "left", -6};
  thalweg_publisher *all[] = {to("/text", text), to("/plain", plain), to("/reading", reading), to("/raw", raw)};
  OK(thalweg_publisher_publish(all[0], hello, sizeof hello, NULL));
  OK(thalweg_publisher_publish_value(all[1], &value.at, NULL));
  OK(thalweg_publisher_publish_value(all[2], &value, NULL));
  thalweg_loan *loan = NULL;
  void *data = NULL;
  OK(thalweg_publisher_loan(all[3], 100000, &loan, &data));
  memset(data, 9, 100000);
  OK(thalweg_loan_publish(loan, NULL));
  for (int index = 0; index < 4; index++) {
    OK(thalweg_publisher_close(all[index], LONG));
    thalweg_publisher_free(all[index]);
  }
}

static thalweg_subscriber *from(const char *topic, const thalweg_type *type) {
  thalweg_subscriber *subscriber = NULL;
  OK(thalweg_subscriber_open(node, topic, type, NULL, &subscriber));
  return subscriber;
}

static void subscribe(void) {
  thalweg_subscriber *all[] = {from("/text", text), from("/plain", plain), from("/reading", reading), from("/raw", raw)};
  thalweg_sample *samples[4];
  for (int index = 0; index < 4; index++) {
    OK(thalweg_subscriber_wait(all[index], LONG, &samples[index]));
  }
  Position at;
  Reading value;
  printf("%s\n", (const char *)thalweg_sample_data(samples[0]) + 8);
  OK(thalweg_sample_value(samples[1], &at, sizeof at));
  printf("%g %g\n", at.x, at.y);
  OK(thalweg_sample_value(samples[2], &value, sizeof value));
  printf("%d %d %g %g %s %d\n", value.on, value.mode, (double)value.gains[2], value.at.y, value.name, (int)value.stamp);
  const unsigned char *bytes = thalweg_sample_data(samples[3]);
  printf("%zu %d\n", thalweg_sample_len(samples[3]), bytes[thalweg_sample_len(samples[3]) - 1]);
  for (int index = 0; index < 4; index++) {
    thalweg_sample_free(samples[index]);
    thalweg_subscriber_free(all[index]);
  }
}

static void ask(void) {
  thalweg_client *client = NULL;
  Position swapped;
  OK(thalweg_client_open(node, "/swap", position, position, &client));
  OK(thalweg_client_call_value(client, &(Position){1, 2}, LONG, &swapped));
  printf("%g %g\n", swapped.x, swapped.y);
  thalweg_client_free(client);
}

static void swap(const thalweg_sample *question, thalweg_reply *reply, void *user) {
  Position asked;
  OK(thalweg_sample_value(question, &asked, sizeof asked));
  OK(thalweg_reply_value(reply, &(Position){asked.y, asked.x}));
  (void)user;
}

static void serve(void) {
  thalweg_server *server = NULL;
  OK(thalweg_server_open(node, "/swap", position, position, swap, NULL, NULL, &server));
  getchar(); /* until the test ends */
  thalweg_server_free(server);
}

int main(int words, char **word) {
  OK(thalweg_node_open("peer", NULL, &node));
  types();
  const char *part = words == 2 ? word[1] : "";
  if (!strcmp(part, "publish")) {
    publish();
  } else if (!strcmp(part, "subscribe")) {
    subscribe();
  } else if (!strcmp(part, "ask")) {
    ask();
  } else if (!strcmp(part, "serve")) {
    serve();
  } else {
    return fprintf(stderr, "usage: %s publish|subscribe|ask|serve\n", word[0]), 2;
  }
  thalweg_node_free(node);
  return 0;
}
