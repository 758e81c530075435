/* Prints positions with their latency; `listener COUNT` ends after so many. See talker.c. */
#include <stdio.h>
#include <stdlib.h>
#include <thalweg.h>

typedef struct { char robot[16]; double x, y; } Position;
static const thalweg_field fields[] = {THALWEG_FIELD(Position, robot, THALWEG_STRING), THALWEG_FIELD(Position, x, THALWEG_F64),
                                       THALWEG_FIELD(Position, y, THALWEG_F64)};

int main(int count, char **words) {
  long left = count > 1 ? atol(words[1]) : -1;
  thalweg_node *node = NULL;
  thalweg_type *type = NULL;
  thalweg_subscriber *subscriber = NULL;
  const thalweg_subscriber_options options = {.size = sizeof options, .name = "/listener"};
  bool failed = thalweg_node_open("listener", NULL, &node) || thalweg_type_struct("Position", sizeof(Position), fields, 3, &type) ||
                thalweg_subscriber_open(node, "/position", type, &options, &subscriber);
  for (thalweg_sample *sample = NULL; !failed && left != 0; left--, thalweg_sample_free(sample), sample = NULL) {
    Position at = {0};
    thalweg_sample_info info = {.size = sizeof info};
    failed = thalweg_subscriber_wait(subscriber, THALWEG_FOREVER, &sample) || thalweg_sample_read_info(sample, &info) ||
             thalweg_sample_value(sample, &at, sizeof at);
    if (failed) break;
    printf("sample %ju: %s at (%.2f, %.2f) after %.1f us\n", (uintmax_t)info.seq, at.robot, at.x, at.y, (double)info.latency_ns / 1e3);
    fflush(stdout);
  }
  return failed ? fprintf(stderr, "%s\n", thalweg_last_error()), 1 : 0;
}
