/* try: a sequence of steps; the first failing one ends the function. */
#ifndef BLOOMERY_TRY_H
#define BLOOMERY_TRY_H

/* Calls, and returns the result from the calling function unless it is 0. For functions that hold nothing that they
 * would have to give back. */
#define TRY(call)         \
    do {                  \
        int rc_ = (call); \
        if (rc_ != 0)     \
            return rc_;   \
    } while (0)

#endif
