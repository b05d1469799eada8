/* absent: Redis's commands on other types than filters, so that their error can say more than "unknown command".
 * Thread: any. */
#ifndef BLOOMERY_ABSENT_H
#define BLOOMERY_ABSENT_H

#include <stdbool.h>

#include "resp_parse.h"

/* Whether Redis 8 has a command of this name, for another type of value or for scripts. ASCII case is ignored. */
bool command_is_absent(struct slice name);

#endif
