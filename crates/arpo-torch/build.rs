//! Tells the loader where the tests of this crate find libtorch (where the build did), and compiles the shim against
//! the headers beside it.

use std::path::Path;

fn main() {
    let folder = std::env::var("DEP_TCH_LIBTORCH_LIB").expect("torch-sys names the folder it linked against");
    println!("cargo:rustc-link-arg=-Wl,-rpath,{folder}");
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=src/shim.cpp");
    let headers = Path::new(&folder).join("../include");
    cc::Build::new()
        .cpp(true)
        .std("c++20")
        .flag_if_supported("-fPIC")
        // libtorch's headers are not ours to fix
        .warnings(false)
        .include(&headers)
        .include(headers.join("torch/csrc/api/include"))
        .file("src/shim.cpp")
        .compile("arpo_shim");
}
