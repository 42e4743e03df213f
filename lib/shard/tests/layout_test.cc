// Layouts of all ranks of a mesh, without communication.
#include "fp8/shard/layout.h"

#include "expert_model.h"
#include "fp8/model/split.h"

namespace fp8::shard {
namespace {

using namespace test;

StoreOptions options_of(const char* recipe, std::vector<int> stages = {}) {
  StoreOptions o;
  o.fp8.recipe = recipe == nullptr ? nullptr : &quant::find_recipe(recipe);
  o.stages = std::move(stages);
  return o;
}

// The layouts of all ranks of a mesh.
std::vector<Layout> layouts(const comm::MeshShape& mesh, const hf::ModelConfig& config, const StoreOptions& options) {
  std::vector<Layout> all;
  for (int rank = 0; rank < mesh.ranks(); ++rank) {
    const model::TensorRank at{rank % mesh.tp, mesh.tp, options.fp8.recipe};
    const std::vector<model::Parameter> table = small_table(config);
    all.emplace_back(mesh, rank, config, model::local_table(config, table, at), options);
  }
  return all;
}

// Every element is in the block of one rank of each replica; the rows that a rank has are those of its block.
void check_blocks(const comm::MeshShape& mesh, const hf::ModelConfig& config) {
  const std::vector<int> stages = mesh.pp == 1 ? std::vector<int>{} : std::vector<int>{1, 2};
  const std::vector<Layout> all = layouts(mesh, config, options_of(nullptr, stages));
  const int copy = mesh.dp_shard * mesh.tp;
  for (std::size_t number = 0; number < all[0].table().size(); ++number) {
    const std::vector<std::int64_t>& shape = all[0].table()[number].whole_shape();
    const std::int64_t columns = shape.size() > 1 ? shape[1] : 1;
    SCOPED_TRACE(all[0].table()[number].name);
    std::vector<int> covered(static_cast<std::size_t>(shape[0] * columns), 0);
    for (int rank = 0; rank < mesh.ranks(); ++rank) {
      const Layout& layout = all[static_cast<std::size_t>(rank)];
      const model::Parameter& p = layout.table()[number];
      const int of_model = rank / (mesh.dp_replicate * copy) * copy + rank % copy;
      const Block block = layout.block_on(p, of_model);
      for (const Layout& other : all) {
        const Block same = other.block_on(p, of_model);
        EXPECT_TRUE(same.rows == block.rows && same.columns == block.columns);
      }
      const RowRange own = layout.rows(static_cast<int>(number));
      EXPECT_EQ(block.rows.count(), layout.owns(p) && layout.first_of_copies(p) ? own.count() : 0);
      if (block.size() == 0) continue;
      EXPECT_EQ(block.rows.begin, p.first_row() + own.begin);
      for (std::int64_t i = block.rows.begin; i < block.rows.end; ++i)
        for (std::int64_t j = block.columns.begin; j < block.columns.end; ++j)
          ++covered[static_cast<std::size_t>(i * columns + j)];
    }
    EXPECT_EQ(covered, std::vector<int>(covered.size(), mesh.dp_replicate));
  }
}

TEST(Layout, BlocksOfRanksAreTheWhole) {
  hf::ModelConfig shared_keys = small_model(), tied = small_model(true);
  shared_keys.num_key_value_heads = 2, shared_keys.intermediate_size = 64;
  check_blocks({}, small_model());
  check_blocks({2, 3, 1, 1, 1}, small_model());
  check_blocks({1, 2, 1, 1, 4}, shared_keys);
  check_blocks({2, 2, 2, 1, 2}, small_model());
  check_blocks({1, 1, 2, 1, 1}, tied);
  check_blocks({1, 3, 1, 3, 2}, small_mixture());
  check_blocks({2, 6, 2, 3, 1}, small_mixture());
  check_blocks({1, 2, 1, 1, 1}, small_mixture_with_adapters());
}

// A rank computes delayed scales of parameters that it does not have.
TEST(Layout, NumbersOfScalesAreEqualOnAllRanks) {
  const std::vector<Layout> all = layouts({1, 2, 2, 2, 1}, small_mixture(), options_of("delayed", {2, 1}));
  const ScaleNumbers& one = all.front().scales();
  EXPECT_EQ(one.first_delayed, 0);
  EXPECT_TRUE(one.first_input > 0 && one.first_gradient > one.first_input);
  EXPECT_EQ(one.count - one.first_gradient, one.first_input) << "one for each weight";
  for (const Layout& layout : all) {
    EXPECT_EQ(layout.scales().count, one.count);
    for (int unit = 0; unit < layout.unit_count(); ++unit)
      for (std::size_t i = 0; i < model::kSlots; ++i) {
        const SlotLayout &a = layout.unit(unit)[i], &b = all.front().unit(unit)[i];
        EXPECT_EQ(a.form, b.form);
        EXPECT_EQ(a.first_scale, b.first_scale);
        EXPECT_EQ(a.first_gradient_scale, b.first_gradient_scale);
      }
  }
}

TEST(Layout, FormFollowsFromRecipeAndOptions) {
  const auto form = [](const quant::Recipe* recipe, bool fp8_all_gather, DType stored = DType::f32, int ranks = 1) {
    StoreOptions options;
    options.fp8.recipe = recipe;
    options.fp8_all_gather = fp8_all_gather;
    std::vector<model::Parameter> table = small_table(small_model());
    for (model::Parameter& p : table)
      if (p.slot == model::Slot::down) p.stored = stored, p.trainable = stored == DType::f32;
    return Layout({1, ranks, 1, 1, 1}, 0, small_model(), table, options)
        .unit(1)[static_cast<std::size_t>(model::Slot::down)]
        .form;
  };
  const quant::Recipe &tensorwise = quant::find_recipe("tensorwise"), &delayed = quant::find_recipe("delayed"),
                      &rowwise = quant::find_recipe("rowwise");
  EXPECT_EQ(form(nullptr, true), WeightForm::compute);
  EXPECT_EQ(form(&tensorwise, true), WeightForm::gathered_codes);
  EXPECT_EQ(form(&tensorwise, false), WeightForm::compute);
  EXPECT_EQ(form(&delayed, true), WeightForm::delayed_codes);
  EXPECT_EQ(form(&delayed, false), WeightForm::delayed);
  EXPECT_EQ(form(&rowwise, true), WeightForm::compute) << "one rank gathers nothing";
  EXPECT_EQ(form(&rowwise, true, DType::f32, 2), WeightForm::pass_codes);
  EXPECT_EQ(form(&rowwise, false, DType::f32, 2), WeightForm::compute);
  EXPECT_EQ(form(&quant::find_recipe("rowwise_with_gw_hp"), true, DType::f32, 2), WeightForm::pass_codes);
  EXPECT_EQ(form(&quant::with_single_copy(rowwise), true), WeightForm::single_copy);
  EXPECT_EQ(form(&tensorwise, true, DType::e4m3), WeightForm::stored_codes);
}

TEST(Layout, WithoutSharedParametersZeroIsOne) {
  const auto zero = [](const comm::MeshShape& mesh, const hf::ModelConfig& config) {
    return layouts(mesh, config, options_of(nullptr)).back().options().zero;
  };
  EXPECT_EQ(zero({4, 1, 1, 1, 1}, small_model()), 1);
  EXPECT_EQ(zero({1, 2, 1, 1, 1}, small_model()), 3);
  EXPECT_EQ(zero({1, 1, 1, 2, 2}, small_mixture()), 1);
  EXPECT_EQ(zero({1, 1, 1, 1, 2}, small_mixture()), 3) << "the ranks of tp share experts";
}

}  // namespace
}  // namespace fp8::shard
