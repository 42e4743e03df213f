// Readers of each trainer's configuration: the score says how many keys of a document only this trainer has, read
// answers every key of an import's documents. Each pair is in the source of its name.
#pragma once

#include <initializer_list>

#include "fp8/foreign/import.h"

namespace fp8::foreign {

// Number of these keys that a document has.
int keys_in(const Document& document, std::initializer_list<const char*> paths);

int score_llama_factory(const Document& document);
void read_llama_factory(Import& import);
int score_automodel(const Document& document);
void read_automodel(Import& import);
int score_kempner(const Document& document);
void read_kempner(Import& import);
int score_axolotl(const Document& document);
void read_axolotl(Import& import);

}  // namespace fp8::foreign
