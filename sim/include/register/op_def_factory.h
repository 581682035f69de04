// All registered operators, in order of type name.
#pragma once
#include <functional>
#include <vector>

#include "register/op_def.h"

namespace ops {

using OpDefCreator = std::function<OpDef(const char*)>;

class OpDefFactory {
 public:
    static int OpDefRegister(const char* type, OpDefCreator creator);

    // Not in CANN in this form: sorted, so that what is written from it does not depend on link order.
    static std::vector<std::string> AllTypes();
    // The operator's definition with functions registered by IMPL_OP_* merged in; nullptr if unknown.
    static OpDef* Find(const std::string& type);
};

}  // namespace ops
