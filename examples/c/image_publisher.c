/* Publishes images over shared memory, each written where its subscribers read it: nothing is copied. See image_subscriber.c. */
#include <stdio.h>
#include <string.h>
#include <thalweg.h>
#include <threads.h>
#include <time.h>

enum { BYTES = 640 * 480 * 3 };

int main(void) {
  thalweg_node *camera = NULL;
  thalweg_type *image = NULL;
  thalweg_publisher *publisher = NULL;
  const thalweg_publisher_options options = {.size = sizeof options, .carriers = "shm"};
  bool failed = thalweg_node_open("camera", NULL, &camera) || thalweg_type_bytes(&image) ||
                thalweg_publisher_open(camera, "/image", image, &options, &publisher);
  for (int number = 0; !failed; number = (number + 1) % 256) {
    thalweg_loan *loan = NULL;
    void *pixels = NULL;
    thalweg_published done = {0};
    failed = thalweg_publisher_loan(publisher, BYTES, &loan, &pixels) || !memset(pixels, number, BYTES) || thalweg_loan_publish(loan, &done);
    if (failed) break;
    printf("sample %ju: %d bytes, sum %d sent on %u channels\n", (uintmax_t)done.seq, BYTES, BYTES * number, done.sent);
    fflush(stdout);
    thrd_sleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
  }
  return fprintf(stderr, "%s\n", thalweg_last_error()), 1;
}
