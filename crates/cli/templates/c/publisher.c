/* Publishes a position ten times a second, and promises one at least every 200 ms. */
#include "message.h"

#include <stdio.h>
#include <threads.h>
#include <time.h>

static int failed(void) {
  fprintf(stderr, "%s\n", thalweg_last_error());
  return 1;
}

int main(void) {
  thalweg_node *node = NULL;
  thalweg_type *type = NULL;
  thalweg_publisher *publisher = NULL;
  const thalweg_publisher_options options = {.size = sizeof options, .qos = &promise};
  if (thalweg_node_open("publisher", NULL, &node) ||
      thalweg_type_struct("Position", sizeof(Position), position_fields, 2, &type) ||
      thalweg_publisher_open(node, TOPIC, type, &options, &publisher)) {
    return failed();
  }
  printf("%s publishes %s; stop with Ctrl-C\n", thalweg_publisher_name(publisher), TOPIC);
  fflush(stdout);
  for (Position position = {0, 0};; position.x += 0.1) {
    if (thalweg_publisher_publish_value(publisher, &position, NULL)) {
      return failed();
    }
    thrd_sleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
  }
}
