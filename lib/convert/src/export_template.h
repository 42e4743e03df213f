// The chat template of an export.
#pragma once

#include <map>
#include <string>

#include "fp8/convert/export.h"
#include "fp8/convert/open.h"

namespace fp8::convert {

// `options` with the end token of the chat template, that of `options` or the checkpoint's own, and with the template's
// file among the inputs. Changes `texts`, the files beside the checkpoint's tokenizer, to a template of `options` that
// is not the checkpoint's own and to its end token, and, for adapters, to that of the checkpoint's own. Adds a note
// that names the checkpoint's own. Throws Error as chat::choose_template() does.
ExportOptions with_template(ExportOptions options, const OpenModel& model, std::map<std::string, std::string>& texts,
                            ExportReport& report);

}  // namespace fp8::convert
