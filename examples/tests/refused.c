/* A subscriber of another type than the talker's: prints why they do not match. */
#include <stdio.h>
#include <string.h>
#include <thalweg.h>

int main(void) {
  thalweg_node *node = NULL;
  thalweg_type *bytes = NULL;
  thalweg_subscriber *subscriber = NULL;
  char *event = NULL;
  if (thalweg_node_open("refused", NULL, &node) || thalweg_type_bytes(&bytes) ||
      thalweg_subscriber_open(node, "/position", bytes, NULL, &subscriber)) {
    return fprintf(stderr, "%s\n", thalweg_last_error()), 1;
  }
  while (!thalweg_node_wait_event(node, THALWEG_S(20), &event)) {
    if (strstr(event, "do not match: type")) {
      puts(event);
      fflush(stdout);
      return 0;
    }
    thalweg_string_free(event);
  }
  return fprintf(stderr, "%s\n", thalweg_last_error()), 1;
}
