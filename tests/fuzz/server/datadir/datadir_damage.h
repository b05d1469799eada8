/* datadir_damage: what a tampering hand, a broken disk or a wrong backup may make of a data directory, from a recipe;
 * mostly with the checksums put right, so that what is behind them is reached.
 *
 * Thread: one. */
#ifndef BLOOMERY_FUZZ_DATADIR_DAMAGE_H
#define BLOOMERY_FUZZ_DATADIR_DAMAGE_H

#include "recipe.h"

/* Returns how many changes there have been. */
unsigned datadir_damage(const char *dir, struct recipe *recipe);

/* Of the names and bytes of all files below, except for the lock. */
uint64_t datadir_tree_digest(const char *dir);

#endif
