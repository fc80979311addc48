/* Valgrind's client requests as functions, for Python: `verify/python_side.py` marks the plaintext of pages as secret
 * with them, and counts what memcheck reports while a query is answered. Outside valgrind they do nothing. */
#include <stddef.h>
#include <valgrind/memcheck.h>

void taint_hide(void *memory, size_t bytes)
{
    VALGRIND_MAKE_MEM_UNDEFINED(memory, bytes);
}

void taint_show(void *memory, size_t bytes)
{
    VALGRIND_MAKE_MEM_DEFINED(memory, bytes);
}

/* How many branches and addresses on secrets memcheck has seen so far. */
size_t taint_errors(void)
{
    return VALGRIND_COUNT_ERRORS;
}

int taint_watched(void)
{
    return RUNNING_ON_VALGRIND != 0;
}
