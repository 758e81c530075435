/* Writes an image into the memory of its subscriber, which reads it there: nothing is copied. */
#include <stdio.h>
#include <string.h>
#include <thalweg.h>

enum { BYTES = 1 << 20 };

int main(void) {
  thalweg_node *camera = NULL, *viewer = NULL;
  thalweg_type *image = NULL;
  thalweg_publisher *publisher = NULL;
  thalweg_subscriber *subscriber = NULL;
  thalweg_loan *loan = NULL;
  thalweg_sample *sample = NULL;
  void *pixels = NULL;
  const thalweg_publisher_options options = {.size = sizeof options, .carriers = "shm"};
  if (thalweg_node_open("camera", NULL, &camera) || thalweg_node_open("viewer", NULL, &viewer) || thalweg_type_bytes(&image) ||
      thalweg_publisher_open(camera, "/image", image, &options, &publisher) ||
      thalweg_subscriber_open(viewer, "/image", image, NULL, &subscriber) ||
      thalweg_publisher_wait_connected(publisher, 1, THALWEG_S(10)) || thalweg_publisher_loan(publisher, BYTES, &loan, &pixels) ||
      !memset(pixels, 255, BYTES) || thalweg_loan_publish(loan, NULL) || thalweg_subscriber_wait(subscriber, THALWEG_S(10), &sample)) {
    return fprintf(stderr, "%s\n", thalweg_last_error()), 1;
  }
  const unsigned char *seen = thalweg_sample_data(sample);
  printf("%zu bytes, the last is %d\n", thalweg_sample_len(sample), seen[BYTES - 1]);
  thalweg_sample_free(sample);
}
