#pragma once
#include <string>

namespace hostsim {

// The document of contract.json for every registered operator, in order of type name.
std::string ContractJson();

// PagedAttention -> paged_attention
std::string SnakeCase(const std::string& type);

}  // namespace hostsim
