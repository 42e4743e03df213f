// Malicious files: each is made with HDF5 itself, behind a valid user block, and must be refused by name and reason,
// without following its references.
#include <hdf5.h>
#include <sys/stat.h>

#include <array>
#include <functional>
#include <tuple>

#include "fixture.h"
#include "fp8/base/text.h"
#include "fp8/h5/reader.h"
#include "fp8/h5/user_block.h"
#include "fp8/h5/writer.h"
#include "library.h"

namespace fp8::h5 {
namespace {

class Hostile : public FolderTest {
 protected:
  // Makes a file with `make` and returns the reader's error.
  std::string refuse(const std::function<void(hid_t file)>& make) {
    write(make);
    return error_of([&] { Reader r(at("x.h5"), kCheckpointMagic); });
  }
  void write(const std::function<void(hid_t file)>& make) { write(make, file_access().get()); }
  void write(const std::function<void(hid_t file)>& make, hid_t access) {
    std::ignore = enter_library();
    Handle creation(H5Pcreate(H5P_FILE_CREATE), H5Pclose);
    H5Pset_userblock(creation.get(), kUserBlockBytes);
    Handle file(H5Fcreate(at("x.h5").c_str(), H5F_ACC_TRUNC, creation.get(), access), H5Fclose);
    ASSERT_TRUE(file.ok());
    make(file.get());
    ASSERT_TRUE(file.close());
    const std::string raw = read_file(at("x.h5"));
    const std::string block = format_user_block(kCheckpointMagic, {raw.size(), std::string(32, '0')});
    write_file(at("x.h5"), block + raw.substr(kUserBlockBytes));
  }
  // A vector of `n` elements, allocated now.
  static Handle vector(hid_t file, const char* name, hid_t type, hsize_t n, hid_t dcpl = H5P_DEFAULT) {
    Handle space(H5Screate_simple(1, &n, nullptr), H5Sclose);
    return {H5Dcreate2(file, name, type, space.get(), H5P_DEFAULT, dcpl, H5P_DEFAULT), H5Dclose};
  }
  static void fill(const Handle& dataset) {
    Handle space(H5Dget_space(dataset.get()), H5Sclose);
    const std::vector<char> zeros(static_cast<std::size_t>(H5Sget_simple_extent_npoints(space.get())) * 8);
    Handle type(H5Dget_type(dataset.get()), H5Tclose);
    ASSERT_GE(H5Dwrite(dataset.get(), type.get(), H5S_ALL, H5S_ALL, H5P_DEFAULT, zeros.data()), 0);
  }
};

TEST_F(Hostile, metadata_without_checksums) {
  write([](hid_t f) { fill(vector(f, "d", H5T_STD_U8LE, 8)); }, H5P_DEFAULT);
  EXPECT_HOLDS(error_of([&] { Reader r(at("x.h5"), kCheckpointMagic); }), "superblock is not of version 2 or 3");
}

TEST_F(Hostile, user_blocks_with_wrong_contents) {
  Writer writer(at("x.h5"), kCheckpointMagic);
  writer.text("config", "{}");
  writer.finish();
  const std::string good = read_file(at("x.h5"));
  const auto with = [&](std::size_t at, const std::string& bytes) {
    std::string raw = good;
    write_file(path() + "/x.h5", raw.replace(at, bytes.size(), bytes));
    return error_of([&] { Reader r(path() + "/x.h5", kCheckpointMagic); });
  };
  EXPECT_EQ(with(0, ""), "no error");
  const auto block = [](std::uint64_t length, const std::string& digest) {
    return format_user_block(kCheckpointMagic, {length, digest});
  };
  const std::string digest(32, '0');
  EXPECT_HOLDS(with(0, block(good.size() - 1, digest)), "x.h5: damaged: 1 bytes after its end");
  EXPECT_HOLDS(with(0, block(~std::uint64_t{0}, digest)), "x.h5: truncated: ");
  EXPECT_HOLDS(with(0, block(good.size(), "not a digest")), "its user block cannot be read");
  EXPECT_HOLDS(with(100, "x"), "its user block is not as written");
  // Superblock fields: base address and end of file.
  for (const std::size_t field : {12, 28})
    EXPECT_HOLDS(with(512 + field, std::string(8, '\1')), "its HDF5 superblock does not fit the file");
}

TEST_F(Hostile, links_other_than_hard_ones) {
  EXPECT_HOLDS(refuse([](hid_t f) { H5Lcreate_soft("/etc", f, "s", H5P_DEFAULT, H5P_DEFAULT); }),
               "x.h5: /s: soft and external links");
  EXPECT_HOLDS(refuse([](hid_t f) { H5Lcreate_external("/etc/passwd", "/", f, "e", H5P_DEFAULT, H5P_DEFAULT); }),
               "x.h5: /e: soft and external links");
  H5L_class_t kind{};
  kind.version = H5L_LINK_CLASS_T_VERS;
  kind.id = H5L_TYPE_UD_MIN;
  kind.trav_func = [](const char*, hid_t, const void*, size_t, hid_t, hid_t) -> hid_t { std::abort(); };
  ASSERT_GE(H5Lregister(&kind), 0);
  EXPECT_HOLDS(
      refuse([](hid_t f) { ASSERT_GE(H5Lcreate_ud(f, "u", H5L_TYPE_UD_MIN, "x", 1, H5P_DEFAULT, H5P_DEFAULT), 0); }),
      "x.h5: /u: soft and external links");
  ASSERT_GE(H5Lunregister(H5L_TYPE_UD_MIN), 0);
}

TEST_F(Hostile, objects_linked_twice) {
  EXPECT_HOLDS(refuse([](hid_t f) { H5Lcreate_hard(f, "/", f, "again", H5P_DEFAULT, H5P_DEFAULT); }),
               "x.h5: linked more than once");
  EXPECT_HOLDS(refuse([](hid_t f) {
                 fill(vector(f, "a", H5T_STD_U8LE, 2));
                 H5Lcreate_hard(f, "a", f, "b", H5P_DEFAULT, H5P_DEFAULT);
               }),
               "x.h5: /a: linked more than once");
}

TEST_F(Hostile, layouts_other_than_contiguous) {
  EXPECT_HOLDS(refuse([](hid_t f) {
                 Handle list(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
                 const hsize_t chunk = 16;
                 H5Pset_chunk(list.get(), 1, &chunk);
                 H5Pset_deflate(list.get(), 9);
                 fill(vector(f, "d", H5T_STD_U8LE, 64, list.get()));
               }),
               "/d: only contiguous layout");
  EXPECT_HOLDS(refuse([](hid_t f) {
                 Handle list(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
                 H5Pset_layout(list.get(), H5D_COMPACT);
                 fill(vector(f, "d", H5T_STD_U8LE, 64, list.get()));
               }),
               "/d: only contiguous layout");
  EXPECT_HOLDS(refuse([](hid_t f) {
                 Handle list(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
                 const hsize_t n = 8;
                 Handle space(H5Screate_simple(1, &n, nullptr), H5Sclose);
                 H5Pset_virtual(list.get(), space.get(), "/etc/other.h5", "/d", space.get());
                 vector(f, "d", H5T_STD_U8LE, 8, list.get());
               }),
               "/d: only contiguous layout");
  EXPECT_HOLDS(refuse([](hid_t f) {
                 Handle list(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
                 H5Pset_external(list.get(), "/etc/passwd", 0, 8);
                 vector(f, "d", H5T_STD_U8LE, 8, list.get());
               }),
               "/d: external storage");
}

TEST_F(Hostile, sizes_beyond_the_file) {
  EXPECT_HOLDS(refuse([](hid_t f) { vector(f, "d", H5T_STD_U8LE, hsize_t{1} << 42); }),
               "/d: declares more bytes than it stores");
  EXPECT_HOLDS(refuse([](hid_t f) {
                 const std::array<hsize_t, 4> shape = {hsize_t{1} << 30, hsize_t{1} << 30, 2, 2};
                 Handle space(H5Screate_simple(4, shape.data(), nullptr), H5Sclose);
                 Handle d(H5Dcreate2(f, "d", H5T_STD_U8LE, space.get(), H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT),
                          H5Dclose);
               }),
               "/d: ");
}

TEST_F(Hostile, types_and_shapes) {
  EXPECT_HOLDS(refuse([](hid_t f) { fill(vector(f, "d", H5T_STD_U16BE, 4)); }), "/d: its type is not allowed");
  EXPECT_HOLDS(refuse([](hid_t f) { fill(vector(f, "d", H5T_STD_REF_OBJ, 4)); }), "/d: its type is not allowed");
  EXPECT_HOLDS(refuse([](hid_t f) { vector(f, "d", H5T_STD_REF_DSETREG, 4); }), "/d: its type is not allowed");
  for (const hid_t base : {H5T_C_S1, H5T_STD_I32LE}) {
    EXPECT_HOLDS(refuse([&](hid_t f) {
                   Handle type(base == H5T_C_S1 ? H5Tcopy(base) : H5Tvlen_create(base), H5Tclose);
                   if (base == H5T_C_S1) H5Tset_size(type.get(), H5T_VARIABLE);
                   vector(f, "d", type.get(), 4);
                 }),
                 "/d: its type is not allowed");
  }
  EXPECT_HOLDS(refuse([](hid_t f) {
                 Handle type(H5Tcreate(H5T_COMPOUND, 8), H5Tclose);
                 H5Tinsert(type.get(), "a", 0, H5T_IEEE_F32LE);
                 vector(f, "d", type.get(), 4);
               }),
               "/d: its type is not allowed");
  EXPECT_HOLDS(refuse([](hid_t f) {  // a named type without links
                 Handle type(H5Tcopy(H5T_STD_U8LE), H5Tclose);
                 H5Tcommit2(f, "t", type.get(), H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
                 vector(f, "d", type.get(), 4);
                 H5Ldelete(f, "t", H5P_DEFAULT);
               }),
               "/d: its type is not allowed");
  EXPECT_HOLDS(refuse([](hid_t f) {
                 const hsize_t n = 3;
                 Handle type(H5Tarray_create2(H5T_STD_U8LE, 1, &n), H5Tclose);
                 vector(f, "d", type.get(), 4);
               }),
               "/d: its type is not allowed");
  EXPECT_HOLDS(refuse([](hid_t f) {
                 Handle type(H5Tcopy(H5T_STD_U8LE), H5Tclose);
                 H5Tcommit2(f, "t", type.get(), H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
               }),
               "/t: neither a group nor a dataset");
  EXPECT_HOLDS(refuse([](hid_t f) {
                 const std::array<hsize_t, 5> shape = {1, 1, 1, 1, 1};
                 Handle space(H5Screate_simple(5, shape.data(), nullptr), H5Sclose);
                 Handle d(H5Dcreate2(f, "d", H5T_STD_U8LE, space.get(), H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT),
                          H5Dclose);
               }),
               "/d: has more than 4 dimensions");
  EXPECT_HOLDS(refuse([](hid_t f) {
                 Handle space(H5Screate(H5S_NULL), H5Sclose);
                 Handle d(H5Dcreate2(f, "d", H5T_STD_U8LE, space.get(), H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT),
                          H5Dclose);
               }),
               "/d: its dataspace is null");
}

TEST_F(Hostile, attributes) {
  const auto with_attribute = [&](hid_t type, hsize_t n, const void* data) {
    return refuse([&](hid_t f) {
      Handle space(n == 0 ? H5Screate(H5S_SCALAR) : H5Screate_simple(1, &n, nullptr), H5Sclose);
      Handle a(H5Acreate2(f, "a", type, space.get(), H5P_DEFAULT, H5P_DEFAULT), H5Aclose);
      ASSERT_GE(H5Awrite(a.get(), type, data), 0);
    });
  };
  Handle variable(H5Tcopy(H5T_C_S1), H5Tclose);
  H5Tset_size(variable.get(), H5T_VARIABLE);
  const char* text = "text";
  EXPECT_HOLDS(with_attribute(variable.get(), 0, &text), "attribute a: its type is not allowed");
  const std::vector<std::int64_t> many(5000);
  EXPECT_HOLDS(with_attribute(H5T_STD_I64LE, 5000, many.data()), "attribute a: longer than 32768 bytes");
  Handle opaque(H5Tcreate(H5T_OPAQUE, 4), H5Tclose);
  EXPECT_HOLDS(with_attribute(opaque.get(), 0, many.data()), "attribute a: its type is not allowed");
  EXPECT_HOLDS(with_attribute(H5T_IEEE_F64LE, 4, many.data()), "attribute a: its type is not allowed");
  EXPECT_HOLDS(with_attribute(H5T_STD_REF_OBJ, 0, many.data()), "attribute a: its type is not allowed");
  Handle sequence(H5Tvlen_create(H5T_STD_I64LE), H5Tclose);
  EXPECT_HOLDS(with_attribute(sequence.get(), 0, many.data()), "attribute a: its type is not allowed");
  EXPECT_HOLDS(refuse([](hid_t f) {
                 Handle scalar(H5Screate(H5S_SCALAR), H5Sclose);
                 for (int i = 0; i < 65; ++i)
                   Handle a(
                       H5Acreate2(f, std::to_string(i).c_str(), H5T_STD_I64LE, scalar.get(), H5P_DEFAULT, H5P_DEFAULT),
                       H5Aclose);
               }),
               "x.h5: holds more than 64 names");
}

TEST_F(Hostile, dtype_that_does_not_match_the_storage) {
  const auto with_dtype = [&](const std::string& name, hid_t stored) {
    return refuse([&](hid_t f) {
      Handle d = vector(f, "d", stored, 4);
      fill(d);
      Handle type(H5Tcopy(H5T_C_S1), H5Tclose);
      H5Tset_size(type.get(), name.size());
      Handle scalar(H5Screate(H5S_SCALAR), H5Sclose);
      Handle a(H5Acreate2(d.get(), "dtype", type.get(), scalar.get(), H5P_DEFAULT, H5P_DEFAULT), H5Aclose);
      ASSERT_GE(H5Awrite(a.get(), type.get(), name.data()), 0);
    });
  };
  EXPECT_HOLDS(with_dtype("float32", H5T_STD_U8LE), "/d: attribute dtype does not fit the stored type");
  EXPECT_HOLDS(with_dtype("float8_e4m3fn", H5T_STD_U16LE), "/d: attribute dtype does not fit the stored type");
  EXPECT_HOLDS(with_dtype("complex64", H5T_STD_U64LE), "/d: attribute dtype names no known type");
  EXPECT_EQ(with_dtype("float8_e8m0fnu", H5T_STD_U8LE), "no error");
  EXPECT_EQ(with_dtype("float32", H5T_STD_U32LE), "no error");
}

TEST_F(Hostile, names_and_depth) {
  EXPECT_HOLDS(refuse([](hid_t f) { Handle g(H5Gcreate2(f, "a b", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT), H5Gclose); }),
               "holds a name that is not allowed");
  EXPECT_HOLDS(
      refuse([](hid_t f) { Handle g(H5Gcreate2(f, "\x1b[31m", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT), H5Gclose); }),
      "not allowed: " + terminal_safe("\x1b[31m"));
  EXPECT_HOLDS(refuse([](hid_t f) {
                 std::string name;
                 for (int i = 0; i < 17; ++i) {
                   name += "/g";
                   Handle g(H5Gcreate2(f, name.c_str(), H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT), H5Gclose);
                 }
               }),
               "groups nest deeper than 16");
}

TEST_F(Hostile, things_that_are_not_hdf5) {
  const auto refused = [&](const char* name) { return error_of([&] { Reader r(at(name), kCheckpointMagic); }); };
  write_file(at("x.h5"), "");
  EXPECT_HOLDS(refused("x.h5"), "x.h5: not a checkpoint (or truncated): 0 bytes");
  for (const std::size_t size : {kUserBlockBytes, std::size_t{5000}}) {
    write_file(at("x.h5"), format_user_block(kCheckpointMagic, {size, std::string(32, '0')}));
    std::filesystem::resize_file(at("x.h5"), size);
    EXPECT_HOLDS(refused("x.h5"), "x.h5: not an HDF5 file");
  }
  EXPECT_HOLDS(refused("none.h5"), "none.h5");
  std::filesystem::create_directory(at("d"));
  EXPECT_HOLDS(refused("d"), "d: not a regular file");
  ASSERT_EQ(mkfifo(at("pipe").c_str(), 0600), 0);
  EXPECT_HOLDS(refused("pipe"), "pipe: not a regular file");
}

}  // namespace
}  // namespace fp8::h5
