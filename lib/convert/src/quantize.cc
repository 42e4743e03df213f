// Writes a checkpoint as codes and scales: the weights to cast are selected first, then tensors are copied to one
// file.
#include "fp8/convert/quantize.h"

#include <algorithm>
#include <cmath>

#include "fp8/base/checked.h"
#include "fp8/base/error.h"
#include "fp8/convert/cast_matrix.h"
#include "fp8/convert/convert.h"
#include "fp8/convert/stored_weight.h"
#include "fp8/dtype/element.h"
#include "fp8/model/checkpoint.h"
#include "fp8/quant/scale.h"

namespace fp8::convert {
namespace {

// Marks the weights that a filter matches as not FP8; throws for a filter that matches none.
void leave_out(const std::vector<std::string>& filters, std::vector<model::Parameter>& table) {
  if (filters.empty()) return;
  std::vector<model::Parameter> filtered = table;
  model::assign_precisions(filtered, {.filters = filters});
  for (std::size_t i = 0; i < table.size(); ++i) {
    if (!filtered[i].reason.starts_with("filter ")) continue;
    table[i].fp8 = false;
    table[i].reason = filtered[i].reason;
  }
}

std::vector<model::Parameter> table_to_quantize(const ckpt::Checkpoint& source, const QuantizeOptions& options) {
  const hf::ModelConfig config = hf::parse_config(source.config(), source.path() + ": /config");
  if (holds_codes(source)) {
    const char* const what = config.lora ? ": holds codes beside adapters; "
                                         : ": already quantized; use the checkpoint that it was made from, or ";
    throw Error(source.path() + what + "dequantize it first", {{"dequantize", ""}});
  }
  std::vector<model::Parameter> table = model::parameter_table(config);
  model::check_weights(source, table);
  model::read_precisions(source, table);
  leave_out(options.filters, table);
  for (const model::Parameter& p : table) check_float(source, p);
  if (std::none_of(table.begin(), table.end(), [](const model::Parameter& p) { return p.fp8; })) {
    throw Error(source.path() + ": nothing to quantize: no weight in it has precision fp8");
  }
  return table;
}

QuantizedTensor summary_of(const model::Parameter& p, const CastResult& cast) {
  const auto [least, greatest] = std::minmax_element(cast.inverse_scales.begin(), cast.inverse_scales.end());
  const auto elements = static_cast<double>(std::max<std::int64_t>(1, cast.counts.elements));
  QuantizedTensor t{.name = p.name, .shape = p.shape};
  if (cast.noise > 0) t.sqnr_db = 10 * std::log10(cast.signal / cast.noise);
  t.infinite = std::isinf(cast.noise);
  t.saturated_share = static_cast<double>(cast.counts.saturated) / elements;
  t.underflow_share = static_cast<double>(cast.counts.underflowed) / elements;
  t.scale_min = *least;
  t.scale_max = *greatest;
  return t;
}

// Casts one weight; a null writer writes nothing.
QuantizedTensor cast_weight(const ckpt::Checkpoint& source, const model::Parameter& p, const QuantizeOptions& options,
                            ckpt::ModelWriter* writer) {
  const CastRule rule{.format = options.format, .scaling = options.scaling, .power_of_2 = options.power_of_2};
  if (writer != nullptr) writer->begin_tensor(meta_in_output(source, p, options.format));
  const CastResult cast = cast_matrix(stored_matrix(source, p), rule, [&](std::span<const std::byte> codes) {
    if (writer != nullptr) writer->write(codes);
  });
  if (writer != nullptr) {
    writer->end_tensor();
    write_scales(p.name, cast.scales, *writer);
  }
  return summary_of(p, cast);
}

// Copies one weight; its compute precision may differ from the source's.
void copy_weight(const ckpt::Checkpoint& source, const model::Parameter& p, ckpt::ModelWriter& writer) {
  const StoredMatrix x = stored_matrix(source, p);
  writer.begin_tensor(meta_in_output(source, p, x.dtype));
  for_pieces(x, [&](std::int64_t, std::int64_t, std::span<const std::byte> bytes) { writer.write(bytes); });
  writer.end_tensor();
}

}  // namespace

QuantizeReport quantize(const std::string& source_path, const std::string& output, const QuantizeOptions& options) {
  using quant::Granularity;
  const bool fp4 = options.scaling == Granularity::block16x16;
  if (options.scaling == Granularity::none || options.scaling == Granularity::block1x128 ||
      options.scaling == Granularity::block1x16 || dtype::is_fp4(options.format) != fp4)
    throw Error("quantize: weights have one scale, one per row, or one per block of 128x128 or 1x32, FP4 of 16x16");
  if (!fp4) dtype::max_of(options.format);  // throws unless FP8
  const ckpt::Checkpoint source = model::open_checkpoint(source_path);
  const std::vector<model::Parameter> table = table_to_quantize(source, options);
  QuantizeReport report;
  report.notes = source.passed_over();
  report.weights = static_cast<std::int64_t>(table.size());
  for (const model::Parameter& p : table) {
    const std::uint64_t stored = source.at(stored_name(p)).bytes();
    report.bytes_before = checked_add(report.bytes_before, stored, source_path);
    report.bytes =
        checked_add(report.bytes, p.fp8 ? bytes_of_codes(p, options.format, options.scaling) : stored, source_path);
  }
  std::optional<ckpt::ModelWriter> writer = start_output(source, {.path = output,
                                                                  .kind = ckpt::FileKind::quantized,
                                                                  .config = source.config(),
                                                                  .weights_bytes = report.bytes,
                                                                  .origin = options.origin,
                                                                  .force = options.force,
                                                                  .dry_run = options.dry_run});
  ckpt::ModelWriter* const to = writer ? &*writer : nullptr;
  for (std::size_t i = 0; i < table.size(); ++i) {
    if (options.progress) options.progress(table[i].name, i, table.size());
    if (table[i].fp8) {
      report.tensors.push_back(cast_weight(source, table[i], options, to));
    } else if (to != nullptr) {
      copy_weight(source, table[i], *to);
    }
  }
  if (to != nullptr) {
    ckpt::copy_unknown(source, *to);
    to->commit();
  }
  return report;
}

}  // namespace fp8::convert
