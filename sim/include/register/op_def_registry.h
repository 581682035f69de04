// OP_ADD(Type): adds an operator to the recorder. CANN gives this macro three meanings (definition, prototype
// and tiling library); here one definition serves all.
#pragma once
#include "register/op_def.h"
#include "register/op_def_factory.h"

#define OP_ADD(opType, ...)         \
    static int g_##opType##_added = \
        ops::OpDefFactory::OpDefRegister(#opType, [](const char*) -> ops::OpDef { return opType(#opType); })
