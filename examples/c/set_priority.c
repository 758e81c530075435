/* Sets the priority of a live channel: `set_priority /talker /listener "class=high sched=fifo:30"`. */
#include <stdio.h>
#include <thalweg.h>

int main(int count, char **words) {
  thalweg_node *node = NULL;
  char *effect = NULL;
  if (count != 4) {
    return fprintf(stderr, "usage: %s PUBLISHER SUBSCRIBER SETTINGS\n", words[0]), 2;
  }
  thalweg_status status = thalweg_node_open("set", NULL, &node);
  if (status == THALWEG_OK) {
    status = thalweg_node_set(node, words[1], words[2], words[3], &effect);
  }
  if (status != THALWEG_OK) {
    return fprintf(stderr, "%s: %s\n", thalweg_status_name(status), thalweg_last_error()), 1;
  }
  printf("%s", effect);
  thalweg_string_free(effect);
  thalweg_node_free(node);
}
