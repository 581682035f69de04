// Names that the MindSpore Lite 2.0.0 converter exports, declared as far as this plugin calls them.
//
// The wheel ships no converter headers. Names and parameters are those of the exported symbols (nm -DC) of
// libmslite_converter_plugin.so, libmindspore_core.so and libmindspore_converter.so; the order of virtual
// functions is that of the release's documented extension interface. A change of parameters shows as an
// unresolved symbol when the plugin is linked. Build with -D_GLIBCXX_USE_CXX11_ABI=0, as the wheel was.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace google::protobuf::io {
// Stands for protobuf's class in _InternalSerialize. Its first member is the end of the writable range; with
// an end that is never reached the generated code writes straight to the target and calls nothing else.
class EpsCopyOutputStream {
 public:
    explicit EpsCopyOutputStream(uint8_t* end) : end_(end) {}

 private:
    uint8_t* end_;
    uint8_t rest_[120] = {};  // buffers and flags, all zero: no aliasing, no deterministic order
};
}  // namespace google::protobuf::io

namespace onnx {
class GraphProto;
class NodeProto {
 public:
    size_t ByteSizeLong() const;  // also caches the sizes that _InternalSerialize needs
    uint8_t* _InternalSerialize(uint8_t* target, google::protobuf::io::EpsCopyOutputStream* stream) const;
};
}  // namespace onnx
namespace caffe {
class LayerParameter;
}
namespace tensorflow {
class NodeDef;
}
namespace tflite {
struct OperatorT;
struct SubGraphT;
struct ModelT;
}  // namespace tflite

namespace mindspore {
class Base;

namespace api {
template <typename T>
class SharedPtr {
 public:
    SharedPtr() = default;
    template <typename U>
    explicit SharedPtr(std::shared_ptr<U> held) : held_(std::move(held)) {}

 private:
    std::shared_ptr<T> held_;
};

// Every wrapper is a vtable pointer and one shared_ptr.
class Value {
 public:
    virtual ~Value();

 protected:
    Value() = default;
    std::shared_ptr<mindspore::Base> impl_;
};
using ValuePtr = SharedPtr<Value>;

class BoolImm : public Value {
 public:
    explicit BoolImm(bool value);
    ~BoolImm() override;
};
class Int64Imm : public Value {
 public:
    explicit Int64Imm(int64_t value);
    ~Int64Imm() override;
};
class FP32Imm : public Value {
 public:
    explicit FP32Imm(float value);
    ~FP32Imm() override;
};
class StringImm : public Value {
 public:
    explicit StringImm(const std::string& value);
    ~StringImm() override;
};
class ValueTuple : public Value {
 public:
    explicit ValueTuple(const std::vector<ValuePtr>& elements);
    ~ValueTuple() override;
};

class Primitive {
 public:
    virtual ~Primitive();
    Primitive& AddAttr(const std::string& name, const ValuePtr& value);

 protected:
    Primitive() = default;
    std::shared_ptr<mindspore::Base> impl_;
};
}  // namespace api

namespace ops {
class BaseOperator : public api::Primitive {
 public:
    explicit BaseOperator(const std::string& name);
    ~BaseOperator() override;
};
}  // namespace ops

namespace converter {
enum FmkType : int { kFmkTypeOnnx = 2 };

// The order of the virtual functions is the interface.
class NodeParser {
 public:
    using Result = std::shared_ptr<ops::BaseOperator>;
    virtual ~NodeParser() = default;
    virtual Result Parse(const onnx::GraphProto&, const onnx::NodeProto&) { return nullptr; }
    virtual Result Parse(const caffe::LayerParameter&, const caffe::LayerParameter&) { return nullptr; }
    virtual Result Parse(const tensorflow::NodeDef&, const std::map<std::string, const tensorflow::NodeDef*>&,
                         std::vector<std::string>*, int*) {
        return nullptr;
    }
    virtual Result Parse(const std::unique_ptr<tflite::OperatorT>&, const std::unique_ptr<tflite::SubGraphT>&,
                         const std::unique_ptr<tflite::ModelT>&) {
        return nullptr;
    }
};
}  // namespace converter

enum class DataType : int;
class MSTensor {
 public:
    class Impl;
    enum DataType DataType() const;
    void SetDataType(enum DataType type);
    const std::vector<int64_t>& Shape() const;
    void SetShape(const std::vector<int64_t>& shape);

 private:
    std::shared_ptr<Impl> impl_;
};

class Status {
 public:
    static Status OK();

 private:
    struct Data;
    std::shared_ptr<Data> data_;
};

namespace schema {
struct Primitive;
}
namespace kernel {
class Kernel;
class KernelInterface {
 public:
    virtual ~KernelInterface() = default;
    virtual Status Infer(std::vector<MSTensor>* inputs, std::vector<MSTensor>* outputs,
                         const schema::Primitive*) = 0;
    virtual Status Infer(std::vector<MSTensor>* inputs, std::vector<MSTensor>* outputs,
                         const schema::Primitive* primitive, const Kernel*) {
        return Infer(inputs, outputs, primitive);
    }
};
}  // namespace kernel

namespace registry {
class NodeParserRegistry {
 public:
    NodeParserRegistry(converter::FmkType framework, const std::vector<char>& op_type,
                       const std::shared_ptr<converter::NodeParser>& parser);
};
class RegisterKernelInterface {
 public:
    static Status CustomReg(const std::vector<char>& provider, const std::vector<char>& type,
                            std::function<std::shared_ptr<kernel::KernelInterface>()> creator);
};
}  // namespace registry
}  // namespace mindspore
