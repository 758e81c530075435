/* Publishes the position of a robot ten times a second. See listener.c. */
#include <stdio.h>
#include <thalweg.h>
#include <threads.h>
#include <time.h>

typedef struct { char robot[16]; double x, y; } Position;
static const thalweg_field fields[] = {THALWEG_FIELD(Position, robot, THALWEG_STRING), THALWEG_FIELD(Position, x, THALWEG_F64),
                                       THALWEG_FIELD(Position, y, THALWEG_F64)};

int main(void) {
  thalweg_node *node = NULL;
  thalweg_type *type = NULL;
  thalweg_publisher *publisher = NULL;
  const thalweg_publisher_options options = {.size = sizeof options, .name = "/talker"};
  if (thalweg_node_open("talker", NULL, &node) || thalweg_type_struct("Position", sizeof(Position), fields, 3, &type) ||
      thalweg_publisher_open(node, "/position", type, &options, &publisher)) {
    return fprintf(stderr, "%s\n", thalweg_last_error()), 1;
  }
  thalweg_published done;
  for (int step = 0;; step++) {
    const Position at = {"Zoë", step / 10.0, step / 10.0 * (step / 10.0)};
    if (thalweg_publisher_publish_value(publisher, &at, &done)) {
      return fprintf(stderr, "%s\n", thalweg_last_error()), 1;
    }
    printf("sample %ju: %s at (%.2f, %.2f) sent on %u channels\n", (uintmax_t)done.seq, at.robot, at.x, at.y, done.sent);
    fflush(stdout);
    thrd_sleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
  }
}
