/* An extension module for HPy's universal ABI: what test_hpy.py records. */
#include "hpy.h"

HPyDef_METH(add, "add", HPyFunc_VARARGS) static HPy
    add_impl(HPyContext *ctx, HPy self, const HPy *args, size_t nargs)
{
    (void)self;
    (void)nargs;
    return HPy_Add(ctx, args[0], args[1]);
}

HPyDef_METH(call, "call", HPyFunc_O) static HPy
    call_impl(HPyContext *ctx, HPy self, HPy function)
{
    (void)self;
    return HPy_CallTupleDict(ctx, function, HPy_NULL, HPy_NULL);
}

/* More calls while the exception is set. */
HPyDef_METH(fail, "fail", HPyFunc_O) static HPy
    fail_impl(HPyContext *ctx, HPy self, HPy object)
{
    (void)self;
    HPyErr_SetString(ctx, ctx->h_ValueError, "as asked for");
    HPy_Close(ctx, HPy_Dup(ctx, object));
    return HPy_NULL;
}

/* `count` ints, made and dropped. */
HPyDef_METH(numbers, "numbers", HPyFunc_O) static HPy
    numbers_impl(HPyContext *ctx, HPy self, HPy count)
{
    (void)self;
    long n = (long)HPyLong_AsLong(ctx, count);
    for (long i = 0; i < n; i++) {
        HPy_Close(ctx, HPyLong_FromLong(ctx, i));
    }
    return HPy_Dup(ctx, count);
}

HPyDef_METH(text, "text", HPyFunc_NOARGS) static HPy
    text_impl(HPyContext *ctx, HPy self)
{
    static char bytes[12347];
    (void)self;
    for (size_t i = 0; i < sizeof bytes; i++) {
        bytes[i] = 'x';
    }
    return HPyBytes_FromStringAndSize(ctx, bytes, sizeof bytes);
}

/* Lets go of the GIL and takes it again. */
HPyDef_METH(leave, "leave", HPyFunc_NOARGS) static HPy
    leave_impl(HPyContext *ctx, HPy self)
{
    (void)self;
    HPyThreadState state = HPy_LeavePythonExecution(ctx);
    HPy_ReenterPythonExecution(ctx, state);
    return HPy_Dup(ctx, ctx->h_None);
}

static HPyDef *defines[] = {&add, &call, &fail, &numbers, &text, &leave, NULL};
static HPyModuleDef moduledef = {.doc = "", .size = 0, .defines = defines};
HPy_MODINIT(hpy_extension, moduledef)
