// model.safetensors.index.json in a folder with two valid shards: with an accepted index all tensors can be read.
#include <vector>

#include "fp8/hf/folder.h"
#include "fuzz.h"

namespace {

std::string make_folder() {
  using namespace fp8;
  const std::string path = fuzz::folder().at("model");
  fuzz::folder().write("model/config.json", R"({"model_type": "llama"})");
  for (const std::string name : {"a", "b"}) {
    hf::SafetensorsWriter shard(path + "/" + name + ".safetensors", {{name + ".weight", dtype::DType::f32, {2, 3}}});
    shard.begin(name + ".weight");
    shard.write(std::vector<std::byte>(24));
    shard.finish();
  }
  return path;
}

}  // namespace

FP8_FUZZ(index) {
  using namespace fp8;
  static const std::string path = make_folder();
  fuzz::folder().write("model/model.safetensors.index.json", fuzz::text_of(data, size));
  return fuzz::judge([&] {
    const hf::Folder model(path);
    for (const hf::Folder::Entry& t : model.tensors()) {
      std::vector<float> values(6);
      model.read_rows_f32(t, 0, 2, values);
    }
  });
}
