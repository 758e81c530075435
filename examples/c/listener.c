/* Prints positions as they come. See talker.c. */
#include <stdio.h>
#include <thalweg.h>

typedef struct {
  double x, y;
} Position;

static const thalweg_field fields[] = {THALWEG_FIELD(Position, x, THALWEG_F64), THALWEG_FIELD(Position, y, THALWEG_F64)};

int main(void) {
  thalweg_node *node = NULL;
  thalweg_type *type = NULL;
  thalweg_subscriber *subscriber = NULL;
  const thalweg_subscriber_options options = {.size = sizeof options, .name = "/listener"};
  if (thalweg_node_open("listener", NULL, &node) || thalweg_type_struct("Position", sizeof(Position), fields, 2, &type) ||
      thalweg_subscriber_open(node, "/position", type, &options, &subscriber)) {
    return fprintf(stderr, "%s\n", thalweg_last_error()), 1;
  }
  for (thalweg_sample *sample = NULL; !thalweg_subscriber_wait(subscriber, THALWEG_FOREVER, &sample); thalweg_sample_free(sample)) {
    Position position;
    thalweg_sample_info info = {.size = sizeof info};
    if (!thalweg_sample_value(sample, &position, sizeof position) && !thalweg_sample_read_info(sample, &info)) {
      printf("x %.1f after %.1f us, from %s\n", position.x, (double)info.latency_ns / 1e3, info.publisher);
      fflush(stdout);
    }
  }
  return fprintf(stderr, "%s\n", thalweg_last_error()), 1;
}
