// Reads ONNX NodeProto attributes from protobuf's wire format.
#pragma once

#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

namespace hybrid_ops {

// AttributeProto.AttributeType of onnx.proto.
enum class Kind { kUndefined = 0, kFloat = 1, kInt = 2, kString = 3, kFloats = 6, kInts = 7, kStrings = 8 };

struct Attribute {
    std::string name;
    int kind = 0;
    float f = 0;
    int64_t i = 0;
    std::string s;
    std::vector<float> floats;
    std::vector<int64_t> ints;
    std::vector<std::string> strings;
};

class Wire {
 public:
    explicit Wire(const std::string& bytes) : at_(bytes.data()), end_(bytes.data() + bytes.size()) {}

    // Moves to the next field; false at the end. One of the readers below must follow.
    bool Next() {
        if (AtEnd()) return false;
        const uint64_t tag = Varint();
        field_ = static_cast<int>(tag >> 3);
        type_ = static_cast<int>(tag & 7);
        return true;
    }
    bool AtEnd() const { return at_ == end_; }
    int field() const { return field_; }
    bool packed() const { return type_ == 2; }

    uint64_t Varint() {
        uint64_t value = 0;
        for (int shift = 0; shift < 64; shift += 7) {
            const auto byte = static_cast<uint8_t>(*Take(1));
            value |= static_cast<uint64_t>(byte & 0x7F) << shift;
            if (byte < 0x80) return value;
        }
        throw std::runtime_error("varint longer than ten bytes");
    }
    float Float() {
        float value;
        std::memcpy(&value, Take(sizeof value), sizeof value);
        return value;
    }
    std::string Bytes() {
        const uint64_t size = Varint();
        return std::string(Take(size), size);
    }
    void Skip() {
        switch (type_) {
            case 0:
                Varint();
                return;
            case 1:
                Take(8);
                return;
            case 2:
                Bytes();
                return;
            case 5:
                Take(4);
                return;
            default:
                throw std::runtime_error("unknown wire type");
        }
    }

 private:
    const char* Take(uint64_t count) {
        if (count > static_cast<uint64_t>(end_ - at_)) throw std::runtime_error("node is cut short");
        const char* from = at_;
        at_ += count;
        return from;
    }

    const char* at_;
    const char* end_;
    int field_ = 0;
    int type_ = 0;
};

// Calls `one(wire)` for a single element or for each of a packed list.
template <typename One>
void Repeated(Wire& wire, One one) {
    if (!wire.packed()) return one(wire);
    const std::string bytes = wire.Bytes();
    for (Wire list(bytes); !list.AtEnd();) one(list);
}

inline Attribute ReadAttribute(const std::string& bytes) {
    Attribute read;
    for (Wire wire(bytes); wire.Next();) {
        switch (wire.field()) {  // field numbers of onnx.proto
            case 1:
                read.name = wire.Bytes();
                break;
            case 2:
                read.f = wire.Float();
                break;
            case 3:
                read.i = static_cast<int64_t>(wire.Varint());
                break;
            case 4:
                read.s = wire.Bytes();
                break;
            case 7:
                Repeated(wire, [&read](Wire& w) { read.floats.push_back(w.Float()); });
                break;
            case 8:
                Repeated(wire, [&read](Wire& w) { read.ints.push_back(static_cast<int64_t>(w.Varint())); });
                break;
            case 9:
                read.strings.push_back(wire.Bytes());
                break;
            case 20:
                read.kind = static_cast<int>(wire.Varint());
                break;
            default:
                wire.Skip();
        }
    }
    return read;
}

struct Node {
    std::string name;
    std::vector<Attribute> attributes;
};

inline Node ReadNode(const std::string& bytes) {
    Node read;
    for (Wire wire(bytes); wire.Next();) {
        if (wire.field() == 3) {
            read.name = wire.Bytes();
        } else if (wire.field() == 5) {
            read.attributes.push_back(ReadAttribute(wire.Bytes()));
        } else {
            wire.Skip();
        }
    }
    return read;
}

}  // namespace hybrid_ops
