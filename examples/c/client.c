/* Asks a server for 6 / 3, or another division: `client LEFT RIGHT`. See server.c. */
#include <stdio.h>
#include <stdlib.h>
#include <thalweg.h>

typedef struct { int64_t left, right; } Division;
typedef struct { int64_t value; } Quotient;
static const thalweg_field division[] = {THALWEG_FIELD(Division, left, THALWEG_I64), THALWEG_FIELD(Division, right, THALWEG_I64)};
static const thalweg_field quotient[] = {THALWEG_FIELD(Quotient, value, THALWEG_I64)};

int main(int count, char **words) {
  const Division question = {count > 2 ? atoll(words[1]) : 6, count > 2 ? atoll(words[2]) : 3};
  Quotient answer;
  thalweg_node *node = NULL;
  thalweg_type *asked = NULL, *answered = NULL;
  thalweg_client *client = NULL;
  if (thalweg_node_open("client", NULL, &node) || thalweg_type_struct("Division", sizeof(Division), division, 2, &asked) ||
      thalweg_type_struct("Quotient", sizeof(Quotient), quotient, 1, &answered) ||
      thalweg_client_open(node, "/divide", asked, answered, &client) ||
      thalweg_client_call_value(client, &question, THALWEG_S(5), &answer)) {
    return fprintf(stderr, "%s\n", thalweg_last_error()), 1;
  }
  printf("%jd / %jd = %jd\n", (intmax_t)question.left, (intmax_t)question.right, (intmax_t)answer.value);
  thalweg_client_free(client);
  thalweg_node_free(node);
}
