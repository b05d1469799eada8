/* log_shape: parameters of filters and shapes of layers in control records; docs/FORMAT.md section 12.
 *
 * Thread: any. */
#ifndef BLOOMERY_LOG_SHAPE_H
#define BLOOMERY_LOG_SHAPE_H

#include "bloom_filter.h"
#include "bloom_window.h"
#include "log_varint.h"

#define LOG_SHAPE_MAX  64 /* bytes of a shape */
#define LOG_PARAMS_MAX 48 /* bytes of parameters */
#define LOG_TURN_MAX   32 /* bytes of a turn */

/* Each returns the end of the written bytes. */
unsigned char *log_shape_put(unsigned char *at, const struct bloom_shape *shape);
unsigned char *log_params_put(unsigned char *at, const struct bloom_params *params);
unsigned char *log_turn_put(unsigned char *at, const struct bloom_turn *turn);

/* Each reads from the cursor, which becomes bad if the value is cut off or not possible. */
void log_shape_get(struct cursor *cursor, struct bloom_shape *shape_out);
void log_params_get(struct cursor *cursor, struct bloom_params *params_out);
void log_turn_get(struct cursor *cursor, struct bloom_turn *turn_out);

#endif
