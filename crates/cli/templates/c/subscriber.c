/* Prints positions with their latency, and says so if none comes in time. A publisher that promises less is not matched. */
#include "message.h"

#include <stdio.h>

static int failed(void) {
  fprintf(stderr, "%s\n", thalweg_last_error());
  return 1;
}

int main(void) {
  thalweg_node *node = NULL;
  thalweg_type *type = NULL;
  thalweg_subscriber *subscriber = NULL;
  const thalweg_subscriber_options options = {.size = sizeof options, .qos = &promise};
  if (thalweg_node_open("subscriber", NULL, &node) ||
      thalweg_type_struct("Position", sizeof(Position), position_fields, 2, &type) ||
      thalweg_subscriber_open(node, TOPIC, type, &options, &subscriber)) {
    return failed();
  }
  for (;;) {
    thalweg_sample *sample = NULL;
    Position position;
    thalweg_sample_info info = {.size = sizeof info};
    const thalweg_status status = thalweg_subscriber_wait(subscriber, THALWEG_MS(DEADLINE_MS), &sample);
    if (status == THALWEG_TIMEOUT) {
      printf("no position within %d ms\n", DEADLINE_MS);
    } else if (status || thalweg_sample_value(sample, &position, sizeof position) || thalweg_sample_read_info(sample, &info)) {
      return failed();
    } else {
      printf("(%.2f, %.2f) after %.1f us\n", position.x, position.y, (double)info.latency_ns / 1e3);
      thalweg_sample_free(sample);
    }
    fflush(stdout);
  }
}
