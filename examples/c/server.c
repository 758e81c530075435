/* Divides for its clients. See client.c. */
#include <stdio.h>
#include <thalweg.h>
#include <unistd.h>

typedef struct { int64_t left, right; } Division;
typedef struct { int64_t value; } Quotient;
static const thalweg_field division[] = {THALWEG_FIELD(Division, left, THALWEG_I64), THALWEG_FIELD(Division, right, THALWEG_I64)};
static const thalweg_field quotient[] = {THALWEG_FIELD(Quotient, value, THALWEG_I64)};

static void divide(const thalweg_sample *question, thalweg_reply *reply, void *user) {
  Division asked;
  (void)user;
  /* Without a reply the client's time passes. */
  if (!thalweg_sample_value(question, &asked, sizeof asked) && asked.right != 0) {
    thalweg_reply_value(reply, &(Quotient){asked.left / asked.right});
  }
}

int main(void) {
  thalweg_node *node = NULL;
  thalweg_type *asked = NULL, *answered = NULL;
  thalweg_server *server = NULL;
  if (thalweg_node_open("server", NULL, &node) || thalweg_type_struct("Division", sizeof(Division), division, 2, &asked) ||
      thalweg_type_struct("Quotient", sizeof(Quotient), quotient, 1, &answered) ||
      thalweg_server_open(node, "/divide", asked, answered, divide, NULL, NULL, &server)) {
    return fprintf(stderr, "%s\n", thalweg_last_error()), 1;
  }
  puts("serves /divide");
  fflush(stdout);
  pause();
}
