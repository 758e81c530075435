/* The message of both programs, its topic, and the promise. */
#ifndef MESSAGE_H
#define MESSAGE_H

#include <thalweg.h>

#define TOPIC "/position"
/* The longest time between two positions: promised by the publisher, expected by the subscriber. */
#define DEADLINE_MS 200

/* A position in metres. */
typedef struct {
  double x, y;
} Position;

static const thalweg_field position_fields[] = {
    THALWEG_FIELD(Position, x, THALWEG_F64),
    THALWEG_FIELD(Position, y, THALWEG_F64),
};

static const thalweg_qos promise = {.size = sizeof(thalweg_qos), .deadline_ns = THALWEG_MS(DEADLINE_MS)};

#endif
