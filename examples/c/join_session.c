/* Publishes as part of a session that a broker has admitted: `join_session SESSION /TOPIC`. */
#include <stdio.h>
#include <thalweg.h>

int main(int count, char **words) {
  thalweg_node *node = NULL;
  thalweg_type *type = NULL;
  thalweg_publisher *publisher = NULL;
  if (count != 3) {
    return fprintf(stderr, "usage: %s SESSION /TOPIC\n", words[0]), 2;
  }
  const thalweg_publisher_options options = {.size = sizeof options, .session = words[1]};
  if (thalweg_node_open("joiner", NULL, &node) || thalweg_type_bytes(&type) ||
      thalweg_publisher_open(node, words[2], type, &options, &publisher) || thalweg_publisher_publish(publisher, "hello", 5, NULL)) {
    return fprintf(stderr, "%s\n", thalweg_last_error()), 1;
  }
  printf("%s publishes as part of %s\n", thalweg_publisher_name(publisher), words[1]);
  thalweg_publisher_free(publisher);
  thalweg_node_free(node);
}
