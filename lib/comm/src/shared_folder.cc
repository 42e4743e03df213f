// A file that rank 0 writes is looked for on all hosts.
#include "fp8/comm/shared_folder.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <random>

#include "fp8/base/file.h"
#include "fp8/comm/hosts.h"

namespace fp8::comm {
namespace {

constexpr std::uint64_t kMostBytes = 256;  // of a file's name

// 128 random bits as text: no client of a network file system has this name or content in a cache.
std::string random_text() {
  std::random_device random;
  std::string text;
  for (int i = 0; i < 4; ++i) text += std::to_string(random()) + (i < 3 ? "-" : "");
  return text;
}

std::string name_of(const std::string& path) { return std::filesystem::path(path).filename().string(); }

// Why this rank does not see the file, whose content is its name; empty if it does.
std::string why_unseen(const std::string& path) {
  try {
    return read_whole_file(path, kMostBytes) == name_of(path) ? "" : "another file is there";
  } catch (const Error& e) {
    return e.what();
  }
}

}  // namespace

std::string nearest_folder(std::string path) {
  std::error_code ignored;
  while (!std::filesystem::is_directory(path, ignored) && path != "." && path != "/") path = parent_directory(path);
  return path;
}

FolderView view_folder(Communicator& world, const std::string& folder) {
  FolderView view;
  std::optional<AtomicFile> file;
  std::string path;
  if (world.rank() == 0) {
    view.folder = nearest_folder(folder);
    try {
      file.emplace(view.folder + "/fp8-" + random_text(), false);
      File out = File::open_update(file->path());
      out.write_all(name_of(file->path()));
      out.close();
      path = file->path();
    } catch (const Error& e) {
      const std::string why = e.what();  // names the file, which is not the user's
      view.unwritable = view.folder + ": no file can be made there: " + why.substr(why.rfind(": ") + 2);
    }
  }
  view.folder = world.all_gather(view.folder)[0];
  view.unwritable = world.all_gather(view.unwritable)[0];
  path = world.all_gather(path)[0];
  view.unseen.assign(static_cast<std::size_t>(world.size()), "");
  if (!path.empty()) view.unseen = world.all_gather(why_unseen(path));
  return view;
}

void check_shared(Communicator& world, const std::string& folder) {
  const std::vector<std::string> names = hosts(world);
  if (std::ranges::count(names, names[0]) == std::ssize(names)) return;
  const std::vector<std::string> why = view_folder(world, folder).unseen;
  const auto unseen = std::ranges::find_if(why, [](const std::string& text) { return !text.empty(); });
  if (unseen == why.end()) return;
  throw AgreedError(folder + ": " + names[static_cast<std::size_t>(unseen - why.begin())] + " does not see what " +
                        names[0] + " writes there (" + *unseen +
                        "): all hosts need one folder, on a shared file system",
                    Exit::bad);
}

}  // namespace fp8::comm
