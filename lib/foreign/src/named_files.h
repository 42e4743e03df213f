// Files that a configuration names. Private to the crate.
#pragma once

#include <string>

#include "fp8/foreign/import.h"

namespace fp8::foreign {

// The path of a file or folder that the first document names: as it is, or below the folder of the document or a folder
// above it, since trainers are started in the folder of their sources. Empty if it is not there.
std::string find_named(const Import& import, const std::string& name);

// The document of a file that the first document names: one of those given on the command line with the same name, else
// the file, which is read and added. Null, with a note in `missing`, if it is not there.
const Document* named_document(Import& import, const std::string& name, const std::string& what);

}  // namespace fp8::foreign
