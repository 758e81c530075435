/* A server that adds two numbers, and a client that asks it. */
#include <stdio.h>
#include <thalweg.h>

typedef struct {
  int64_t a, b;
} Numbers;
typedef struct {
  int64_t sum;
} Sum;

static const thalweg_field numbers[] = {THALWEG_FIELD(Numbers, a, THALWEG_I64), THALWEG_FIELD(Numbers, b, THALWEG_I64)};
static const thalweg_field sum[] = {THALWEG_FIELD(Sum, sum, THALWEG_I64)};

static void add(const thalweg_sample *question, thalweg_reply *reply, void *user) {
  Numbers asked;
  (void)user;
  if (!thalweg_sample_value(question, &asked, sizeof asked)) {
    thalweg_reply_value(reply, &(Sum){asked.a + asked.b});
  }
}

int main(void) {
  thalweg_node *here = NULL, *there = NULL;
  thalweg_type *question = NULL, *answer = NULL;
  thalweg_server *server = NULL;
  thalweg_client *client = NULL;
  Sum total;
  if (thalweg_node_open("adder", NULL, &here) || thalweg_node_open("asker", NULL, &there) ||
      thalweg_type_struct("Numbers", sizeof(Numbers), numbers, 2, &question) || thalweg_type_struct("Sum", sizeof(Sum), sum, 1, &answer) ||
      thalweg_server_open(here, "/add", question, answer, add, NULL, NULL, &server) ||
      thalweg_client_open(there, "/add", question, answer, &client) ||
      thalweg_client_call_value(client, &(Numbers){2, 3}, THALWEG_S(10), &total)) {
    return fprintf(stderr, "%s\n", thalweg_last_error()), 1;
  }
  printf("2 + 3 = %jd\n", (intmax_t)total.sum);
  thalweg_client_free(client);
  thalweg_server_free(server);
}
