/* Publishes a position ten times a second. See listener.c. */
#include <stdio.h>
#include <thalweg.h>
#include <threads.h>
#include <time.h>

typedef struct {
  double x, y;
} Position;

static const thalweg_field fields[] = {THALWEG_FIELD(Position, x, THALWEG_F64), THALWEG_FIELD(Position, y, THALWEG_F64)};

int main(void) {
  thalweg_node *node = NULL;
  thalweg_type *type = NULL;
  thalweg_publisher *publisher = NULL;
  const thalweg_publisher_options options = {.size = sizeof options, .name = "/talker"};
  if (thalweg_node_open("talker", NULL, &node) || thalweg_type_struct("Position", sizeof(Position), fields, 2, &type) ||
      thalweg_publisher_open(node, "/position", type, &options, &publisher)) {
    return fprintf(stderr, "%s\n", thalweg_last_error()), 1;
  }
  for (Position position = {0, 0};; position.x += 0.1) {
    thalweg_published published;
    if (thalweg_publisher_publish_value(publisher, &position, &published)) {
      return fprintf(stderr, "%s\n", thalweg_last_error()), 1;
    }
    printf("sample %ju: sent on %u channels, waits on %u\n", (uintmax_t)published.seq, published.sent, published.queued);
    fflush(stdout);
    thrd_sleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
  }
}
