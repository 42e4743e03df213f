// The data sets of LLaMA-Factory: names in dataset_info.json. Private to the crate.
#pragma once

#include <string>
#include <vector>

#include "fp8/foreign/import.h"

namespace fp8::foreign {

// The sources that `names` name in `folder`/dataset_info.json, with answers to the keys of their entries. What is not
// on this machine is in Import::missing. `pretraining`: texts, not conversations.
std::vector<DataSource> llama_factory_data(Import& import, const std::string& folder,
                                           const std::vector<std::string>& names, bool pretraining);

}  // namespace fp8::foreign
