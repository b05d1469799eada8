/* try: a sequence of steps; the first failing one ends the function. */
#ifndef BLOOMERY_TRY_H
#define BLOOMERY_TRY_H

/* Calls, and returns from the calling function what the call returned unless that is 0. For functions that hold nothing
 * which they would have to give back. */
#define TRY(call)         \
    do {                  \
        int rc_ = (call); \
        if (rc_ != 0)     \
            return rc_;   \
    } while (0)

#endif
