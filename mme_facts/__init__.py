"""What is known about SageMaker multi-model endpoints and this library's own names: the standard library only.

Modules: `grammar` (ids and keys), `limits`, `environment` (variables of the functions), `problems` (error table of the
API), `images` (image URIs), `lazy` (lazy exports).
"""
