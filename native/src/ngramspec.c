/* The functions of ngramspec.h. The only file to compile: the others are included, so that calls can be inlined and no
 * name but theirs leaves the object. */
#include "open.c"

#include "calls.c"
#include "learned.c"
#include "snapshot.c"
