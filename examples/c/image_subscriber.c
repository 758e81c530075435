/* Reads ten images in the shared memory in which they were written. See image_publisher.c. */
#include <stdio.h>
#include <thalweg.h>

int main(void) {
  thalweg_node *viewer = NULL;
  thalweg_type *image = NULL;
  thalweg_subscriber *subscriber = NULL;
  const thalweg_subscriber_options options = {.size = sizeof options, .carriers = "shm"};
  bool failed = thalweg_node_open("viewer", NULL, &viewer) || thalweg_type_bytes(&image) ||
                thalweg_subscriber_open(viewer, "/image", image, &options, &subscriber);
  for (int left = 10; !failed && left > 0; left--) {
    thalweg_sample *sample = NULL;
    thalweg_sample_info info = {.size = sizeof info};
    failed = thalweg_subscriber_wait(subscriber, THALWEG_S(20), &sample) || thalweg_sample_read_info(sample, &info);
    if (failed) break;
    const unsigned char *pixels = thalweg_sample_data(sample);
    size_t len = thalweg_sample_len(sample), sum = 0;
    for (size_t at = 0; at < len; at++) sum += pixels[at];
    printf("sample %ju: %zu bytes, sum %zu after %.1f us\n", (uintmax_t)info.seq, len, sum, (double)info.latency_ns / 1e3);
    thalweg_sample_free(sample);
  }
  return failed ? fprintf(stderr, "%s\n", thalweg_last_error()), 1 : 0;
}
