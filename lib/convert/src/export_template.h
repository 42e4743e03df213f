// The chat template of an export.
#pragma once

#include "fp8/convert/export.h"
#include "fp8/convert/open.h"

namespace fp8::convert {

// `options` with the end token of the chat template, that of `options` or the model's own, and with the template's file
// among the inputs. Adds a note that names the model's own. Throws Error as chat::choose_template() does.
ExportOptions with_template(ExportOptions options, const OpenModel& model, ExportReport& report);

}  // namespace fp8::convert
