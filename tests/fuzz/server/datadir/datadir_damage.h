/* datadir_damage: possible effects of tampering, a broken disk or a wrong backup on a data directory, from a recipe;
 * mostly with corrected checksums, so that the code after them is reached.
 *
 * Thread: one. */
#pragma once

#include "recipe.h"

/* Returns the number of changes. */
unsigned datadir_damage(const char *dir, struct recipe *recipe);

/* Of the names and bytes of all files below, except for the lock. */
uint64_t datadir_tree_digest(const char *dir);
